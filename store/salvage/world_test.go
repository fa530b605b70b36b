package salvage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/salvage"
	"github.com/lessor-dev/lessor/store/verify"
)

var home, small = engine.Space{Tenant: "acme", Workspace: "home"}, engine.Space{Tenant: "acme", Workspace: "small"}

// worldTasks is how many tasks the world has in its larger workspace: so many that their trees have
// branch pages.
const worldTasks = 150

// world is the file of a sound store, which an engine has filled with records of every keyspace and
// which was then closed. The first test makes it.
var world struct {
	sync.Mutex
	file []byte
}

// soundStore returns a copy of the world, and its contents.
func soundStore(t *testing.T) ([]byte, contents) {
	t.Helper()
	world.Lock()
	defer world.Unlock()
	if world.file == nil {
		dir := t.TempDir()
		makeWorld(t, dir)
		file, err := os.ReadFile(filepath.Join(dir, "lessor.db"))
		if err != nil {
			t.Fatal(err)
		}
		page := os.Getpagesize()
		world.file = file[:(len(bytes.TrimRight(file, "\x00"))/page+1)*page] // the rest was never written
	}
	file := bytes.Clone(world.file)
	return file, soundContents(t, file)
}

func makeWorld(t *testing.T, dir string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st, err := boltstore.Open(dir, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.Open(st, engine.Config{KeySegment: 40})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		(&filler{t, e}).fill()
		cancel()
		if err := errors.Join(<-done, st.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

type filler struct {
	*testing.T
	*engine.Engine
}

func (f *filler) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *filler) submit(name engine.Space, change func(*lease.Spec)) lease.TaskID {
	f.Helper()
	s := &lease.Spec{Queue: "q", Type: "t", HeartbeatTimeout: time.Hour, Payload: bytes.Repeat([]byte("payload "), 40)}
	change(s)
	f.ok(s.Fill(lease.DefaultLimits()))
	all, _, err := f.Submit(f.Context(), name, []*lease.Spec{s}, []lease.Digest{{1}})
	f.ok(err)
	return all[0].Task.ID
}

func (f *filler) lease(name engine.Space, queue string, n int) []engine.Granted {
	f.Helper()
	g, err := f.Lease(f.Context(), engine.LeaseRequest{Wants: engine.Wants{Space: name, Worker: "w", Queues: []string{queue}}, Max: n})
	f.ok(err)
	return g
}

func (f *filler) say(g engine.Granted, rep lease.Report) {
	f.Helper()
	rep.TaskID, rep.LeaseID = g.Task.ID.String(), g.LeaseID
	_, err := f.Judge(f.Context(), home.Tenant, []*lease.Report{&rep})
	f.ok(err)
}

// fill fills the store.
func (f *filler) fill() {
	f.submit(small, func(s *lease.Spec) { s.Queue = "other" }) // workspace 1
	for i := range worldTasks {
		f.submit(home, func(s *lease.Spec) {
			if i%2 == 0 {
				s.IdempotencyKey = fmt.Sprint("key-", i)
			}
			if i%3 == 0 {
				s.RunID = fmt.Sprint("run-", i%7)
			}
			if i == 11 || i == 77 {
				s.Payload = bytes.Repeat([]byte("large "), 4000) // on several pages
			}
			if i%10 < 3 {
				s.Retry.MaxAttempts = 1
			}
			s.Retry.InitialBackoff = time.Minute
		})
	}
	for i, g := range f.lease(home, "q", 90) {
		switch i % 9 {
		case 0, 1, 2:
			f.say(g, lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte(fmt.Sprint("output ", i))}})
		case 3, 4:
			f.say(g, lease.Report{Kind: lease.KindHeartbeat, Checkpoint: []byte(fmt.Sprint("checkpoint ", i))})
		case 5, 6:
			f.say(g, lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{Message: fmt.Sprint("failure ", i)}})
		case 7:
			f.say(g, lease.Report{Kind: lease.KindComplete, Result: &lease.Result{}})
		}
		if i%9 == 6 && g.Task.Spec.Retry.MaxAttempts == 1 {
			_, err := f.Retry(f.Context(), lease.Retry{Tenant: home.Tenant, Task: g.Task.ID})
			f.ok(err)
		}
	}
	f.submit(home, func(s *lease.Spec) { s.Queue, s.HeartbeatTimeout, s.Retry.MaxLosses = "late", 10*time.Second, 1 })
	late := f.lease(home, "late", 1)[0]
	f.say(late, lease.Report{Kind: lease.KindStart})
	time.Sleep(20 * time.Second)
	f.say(late, lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte("too late")}})
	for range 3 {
		f.submit(home, func(s *lease.Spec) { s.Queue, s.ConcurrencyKey, s.ConcurrencyLimit = "keyed", "key", 1 })
	}
	f.lease(home, "keyed", 2)
	host := f.submit(home, func(s *lease.Spec) { s.Queue, s.RunID, s.RunAt = "later", "run", f.Now().Wall+lease.Wall(time.Hour) })
	f.submit(home, func(s *lease.Spec) {
		s.Queue, s.RunID, s.Trace = "later", "run", &lease.Trace{Host: host.String()}
	})
	gone := f.submit(home, func(s *lease.Spec) { s.Queue, s.IdempotencyKey = "gone", "gone" })
	g := f.lease(home, "gone", 1)[0]
	f.say(g, lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte("gone")}})
	f.ok(f.Delete(f.Context(), lease.Delete{Tenant: home.Tenant, Task: gone}))
	fed := f.submit(home, func(s *lease.Spec) { s.Queue, s.Retry.MaxAttempts = "fed", 1 })
	g = f.lease(home, "fed", 1)[0]
	f.FeedAll(home.Tenant, f.ResolveFeeds(home.Tenant,
		[]engine.Feed{{TaskID: fed.String(), LeaseID: g.LeaseID, Message: "half way"}}), func(bool) {})
	synctest.Wait()
	f.say(g, lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{Message: "broken"}})
	_, err := f.UpdateQueue(f.Context(), home, "q", func(s *lease.Settings) { s.MaxInflight = 1000 })
	f.ok(err)
	_, err = f.UpdateQueue(f.Context(), small, "other", func(s *lease.Settings) { s.Rate.PerSecond = 1 })
	f.ok(err)
	f.ok(f.Keep(f.Context(), home.Tenant, func(b *store.Batch) {
		records.PutSigningKey(b, records.SigningKey{Tenant: home.Tenant, ID: "key", Secret: []byte("secret")})
		records.PutToken(b, records.Token{Tenant: home.Tenant, ID: "token", Role: "worker", Subject: "ann", Key: "key"})
		records.PutBackups(b, records.Backups{Done: 1})
	}))
	f.ok(f.Record(records.Audit{Tenant: home.Tenant, Subject: "ann", Action: "CancelTask", Outcome: records.OutcomeOK}))
	synctest.Wait()
}

// taskKeyspaces are those whose records are parts of tasks.
var taskKeyspaces = []store.Keyspace{
	store.Spec, store.Task, store.Lease, store.Output, store.Failure, store.Feedback, store.Checkpoint, store.Ledger,
	store.Discarded,
}

// contents are the tasks of a store and all of its records.
type contents struct {
	epoch   uint32
	tasks   map[lease.TaskID]*lease.Task
	records [store.NumKeyspaces]map[string]string
}

func contentsOf(t *testing.T, st store.Store) (c contents) {
	t.Helper()
	c.tasks = map[lease.TaskID]*lease.Task{}
	err := st.View(func(r store.Reader) error {
		identity, _, err := records.ReadIdentity(r)
		if err != nil {
			return err
		}
		c.epoch = identity.Epoch
		for ks := range store.Keyspace(store.NumKeyspaces) {
			c.records[ks] = map[string]string{}
			err := r.Scan(ks, nil, nil, func(key, value []byte) bool {
				c.records[ks][string(key)] = string(value)
				return true
			})
			if err != nil {
				return err
			}
		}
		for key := range c.records[store.Spec] {
			id, _ := store.TaskOf(store.Spec, []byte(key))
			task, err := records.Task(r, id)
			if err != nil {
				return err
			}
			c.tasks[id] = task
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// soundContents are the contents of a file that is sound.
func soundContents(t *testing.T, file []byte) contents {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sound.db")
	write(t, path, file)
	st, err := boltstore.OpenReadOnly(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	requireSound(t, st)
	return contentsOf(t, st)
}

func requireSound(t *testing.T, st store.Store) {
	t.Helper()
	err := st.View(func(r store.Reader) error {
		_, err := verify.Store(r, func(f verify.Finding) { t.Errorf("finding: %v %x: %s", f.Keyspace, f.Key, f.Problem) })
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// salvaged is the result of a salvage.
type salvaged struct {
	contents
	items  []salvage.Item
	report salvage.Report
	older  bool
	epoch  uint32            // of the new store, when it is complete
	next   map[uint32]uint64 // next sequence of each of its workspaces
	dir    string
}

// salvageFile salvages a damaged file into a directory of that one, as the command does, and
// verifies the new store. It removes what an earlier call has left there.
func salvageFile(t *testing.T, dir string, file []byte) (s salvaged, err error) {
	t.Helper()
	path := filepath.Join(dir, "damaged.db")
	write(t, path, file)
	s.dir = filepath.Join(dir, "new")
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	err = boltstore.Salvage(path, s.dir, boltstore.Options{}, func(from *boltstore.Remains, to *boltstore.Store) error {
		s.older = from.Older() != ""
		s.report, err = salvage.Fill(t.Context(), from, to, 1, func(i salvage.Item) { s.items = append(s.items, i) })
		if err != nil {
			return err
		}
		s.contents = contentsOf(t, to)
		var b store.Batch
		err := to.View(func(r store.Reader) error {
			s.epoch, err = records.MakeIndependent(&b, r, lease.WallOf(time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)))
			return err
		})
		if err == nil {
			err = to.Commit(t.Context(), &b)
		}
		if err == nil {
			requireSound(t, to)
			s.next = map[uint32]uint64{}
			err = to.View(func(r store.Reader) error {
				return records.Spaces(r, func(space records.Space) error {
					s.next[space.Number] = space.NextSeq
					return nil
				})
			})
		}
		return err
	})
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, file) {
		t.Error("the damaged file was changed")
	}
	return s, err
}

// has reports whether an item of one of these kinds is about the task.
func (s *salvaged) has(id lease.TaskID, kinds ...string) bool {
	return slices.ContainsFunc(s.items, func(i salvage.Item) bool { return i.Task == id && slices.Contains(kinds, i.Kind) })
}

// lacks reports whether records of a keyspace are missing whose tasks nobody can name.
func (s *salvaged) lacks(ks store.Keyspace) bool {
	return slices.ContainsFunc(s.items, func(i salvage.Item) bool {
		return i.Kind == salvage.KindRecords &&
			i.Name == ks.String()
	})
}

// partKinds are the kinds of the items that tell of a part without which a task is kept.
var partKinds = map[store.Keyspace]string{
	store.Failure: salvage.KindError, store.Feedback: salvage.KindFeedback, store.Ledger: salvage.KindReport,
	store.Discarded: salvage.KindLateResult,
}

// requireTrue checks that every task of the new store is what it was, but for the parts that are
// named, and that each other one is named. It also checks that no fencing token and no id comes
// again.
func (s *salvaged) requireTrue(t *testing.T, before contents) {
	t.Helper()
	s.requireNew(t, before)
	if missing := len(before.tasks) - len(s.tasks); int(s.report.LeftOut) < missing && !s.report.Unknown {
		t.Errorf("%d tasks are missing, and the report says that %d are left out", missing, s.report.LeftOut)
	}
	for id, was := range before.tasks {
		is := s.tasks[id]
		if is == nil {
			if !s.has(id, salvage.KindTask) && !s.lacks(store.Spec) {
				t.Errorf("task %v is left out, and not named", id)
			}
			continue
		}
		expected := *was
		if s.has(id, salvage.KindError) {
			expected.ErrorCategory = lease.NoCategory
		}
		if s.has(id, salvage.KindLateResult) {
			expected.Discarded = is.Discarded
		}
		if !reflect.DeepEqual(*is, expected) {
			t.Errorf("task %v is %+v, and was %+v", id, is, was)
		}
	}
	for id := range s.tasks {
		if before.tasks[id] == nil {
			t.Errorf("task %v is new", id)
		}
	}
	for _, ks := range taskKeyspaces {
		for key, is := range s.records[ks] {
			id, _ := store.TaskOf(ks, []byte(key))
			changed := ks == store.Task && s.has(id, salvage.KindError, salvage.KindLateResult)
			if was, ok := before.records[ks][key]; !changed && (!ok || was != is) {
				t.Errorf("the record of %v under %x has changed", ks, key)
			}
		}
		for key := range before.records[ks] {
			id, _ := store.TaskOf(ks, []byte(key))
			_, is := s.records[ks][key]
			if s.tasks[id] != nil && !is && (partKinds[ks] == "" || !s.has(id, partKinds[ks]) && !s.lacks(ks)) {
				t.Errorf("task %v is kept without its %v, and nobody says so", id, ks)
			}
		}
	}
	for _, item := range s.items {
		if item.Task != (lease.TaskID{}) && item.Kind != salvage.KindTask && s.tasks[item.Task] == nil {
			t.Errorf("%s: %v, which is not there", item.Kind, item.Task)
		}
	}
}

// requireNew checks that the new store has a higher epoch, and gives no id again.
func (s *salvaged) requireNew(t *testing.T, before contents) {
	t.Helper()
	if s.epoch <= before.epoch {
		t.Errorf("the epoch is %d, and was %d", s.epoch, before.epoch)
	}
	for id := range before.tasks {
		if next, ok := s.next[id.Space]; ok && next <= id.Seq {
			t.Errorf("the next sequence in workspace %d is %d, although %v was given out", id.Space, next, id)
		}
	}
}

func text(items []salvage.Item) string {
	var all []string
	for _, i := range items {
		all = append(all, fmt.Sprintf("%s %v %s %s: %s", i.Kind, i.Task, i.Workspace, i.Name, i.Reason))
	}
	return strings.Join(all, "\n")
}
