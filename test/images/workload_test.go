//go:build faults && !race

package images

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/test/draw"
)

var home = engine.Space{Tenant: "acme", Workspace: "main"}

// workload is an engine over a recorded store, and a client that makes random calls in fake time,
// so that records of every kind are written.
type workload struct {
	t   *testing.T
	rnd *rand.Rand
	rec *recorder
	*engine.Engine
	stop func()

	tasks  []lease.TaskID
	held   []engine.Granted
	tokens []records.Token
	keys   []records.SigningKey
}

// recordWorkload runs an engine for at least so many commits, and until records of every keyspace
// were put and deleted. It returns what was written. After every hundred commits it may complete
// what waits, or leave it for later; it lets enough time pass that all leases and retentions end,
// and starts the engine anew.
func recordWorkload(t *testing.T, rnd *rand.Rand, commits int) (written *recording) {
	t.Helper()
	dir := t.TempDir()
	makeStoreWithoutFreePage(t, dir, rnd.IntN(2) == 0)
	synctest.Test(t, func(t *testing.T) {
		l := &workload{t: t, rnd: rnd, rec: record(t, dir)}
		for done := 0; done < commits || l.untouchedKeyspaces() != ""; done = len(l.rec.recording.commits) {
			if done > 30*commits {
				t.Fatalf("after %d commits no record was put, or none deleted, in these keyspaces: %s",
					done, l.untouchedKeyspaces())
			}
			l.start()
			for len(l.rec.recording.commits) < done+100 {
				l.step()
			}
			if rnd.IntN(2) == 0 {
				l.drain()
			}
			time.Sleep(lease.LedgerAfterDelete + time.Hour)
			l.stop()
			l.rec.reopen()
		}
		written = l.rec.finish()
	})
	return written
}

// makeStoreWithoutFreePage makes a store whose file has no free page, so that the first commits
// make the file larger. The store is a copy of another one with one transaction more or less: that
// decides which of the two meta pages is the newest.
func makeStoreWithoutFreePage(t *testing.T, dir string, odd bool) {
	t.Helper()
	from := filepath.Join(t.TempDir(), "copy")
	st := open(t, t.TempDir())
	defer func() { _ = st.Close() }()
	if odd {
		var b store.Batch
		records.PutClock(&b, 0)
		if err := st.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSnapshot(st, from); err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Restore(from, dir, boltstore.Options{}, func(*boltstore.Store) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

// writeSnapshot writes a snapshot of a store to a file, as a backup does.
func writeSnapshot(st *boltstore.Store, path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := st.Snapshot(file); err != nil {
		return err
	}
	return file.Close()
}

func (l *workload) start() {
	l.t.Helper()
	e, err := engine.Open(l.rec, engine.Config{KeySegment: 1, TimersSwept: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	l.Engine, l.stop = e, func() {
		cancel()
		l.must(<-ended)
	}
}

func (l *workload) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// mustOrRefused accepts the errors by which the rules refuse a command for the state of its task.
func (l *workload) mustOrRefused(err error) {
	l.t.Helper()
	refused := new(lease.StateError)
	if err != nil && !errors.As(err, &refused) && !errors.Is(err, lease.ErrNotFound) {
		l.t.Fatal(err)
	}
}

// untouchedKeyspaces lists the keyspaces in which no record was put yet, or none was deleted
// although records of that kind are deleted at some time.
func (l *workload) untouchedKeyspaces() string {
	var all []string
	for ks := range store.Keyspace(store.NumKeyspaces) {
		stays := false
		switch ks {
		case store.Line, store.Idempotency: // only older formats had records there
			continue
		case store.Meta, store.Space, store.Queue, store.Settings, store.Audit:
			stays = true
		}
		if m := l.rec.model; m.put[ks] == 0 || m.deleted[ks] == 0 && !stays {
			all = append(all, ks.String())
		}
	}
	return strings.Join(all, ", ")
}

// step makes one random call.
func (l *workload) step() {
	type step struct {
		weight int
		do     func()
	}
	draw.One(l.rnd, []step{
		{20, l.submit},
		{20, l.lease},
		{70, l.report},
		{6, l.cancel},
		{3, l.retry},
		{4, l.remove},
		{3, l.adopt},
		{8, l.settings},
		{8, l.credentials},
		{8, l.audit},
		{14, l.passTime},
	}, func(s step) int { return s.weight }).do()
}

func (l *workload) submit() {
	n := 1 + l.rnd.IntN(4)
	if l.rnd.IntN(10) == 0 {
		n *= 10
	}
	specs := make([]*lease.Spec, n)
	for i := range specs {
		specs[i] = l.spec()
		l.must(specs[i].Fill(lease.DefaultLimits()))
	}
	made, _, err := l.Submit(context.Background(), home, specs, make([]lease.Digest, n))
	if exists := new(lease.ExistsError); errors.As(err, &exists) {
		return // two tasks of the batch have the same idempotency key
	}
	l.must(err)
	for _, m := range made {
		l.tasks = append(l.tasks, m.Task.ID)
	}
}

func (l *workload) spec() *lease.Spec {
	s := &lease.Spec{
		Queue: fmt.Sprintf("q%d", l.rnd.IntN(3)), Type: fmt.Sprintf("t%d", l.rnd.IntN(2)), Payload: l.bytes(800),
		Retention: time.Duration(1+l.rnd.IntN(120)) * time.Second, HeartbeatTimeout: 10 * time.Second,
		Retry: lease.RetryPolicy{MaxAttempts: uint32(1 + l.rnd.IntN(3)), MaxLosses: uint32(1 + l.rnd.IntN(3))},
	}
	if l.rnd.IntN(20) == 0 {
		s.Payload = l.bytes(20_000) // several pages
	}
	if l.rnd.IntN(3) == 0 {
		s.IdempotencyKey = fmt.Sprintf("key-%d", l.rnd.IntN(1000))
	}
	if l.rnd.IntN(3) == 0 {
		s.ConcurrencyKey, s.ConcurrencyLimit = fmt.Sprintf("c%d", l.rnd.IntN(2)), 1
	}
	if l.rnd.IntN(4) == 0 {
		s.RunID, s.Trace = "run", &lease.Trace{Host: "host", Chain: []string{"a", "b"}}
	}
	if l.rnd.IntN(5) == 0 {
		s.RunAt = l.Now().Wall + lease.Wall(time.Duration(l.rnd.IntN(30))*time.Second)
	}
	return s
}

func (l *workload) bytes(most int) []byte {
	b := make([]byte, l.rnd.IntN(most))
	for i := range b {
		b[i] = byte(l.rnd.Uint32())
	}
	return b
}

func (l *workload) lease() {
	got, err := l.Lease(context.Background(), engine.LeaseRequest{
		Wants: engine.Wants{Space: home, Worker: "w", Queues: []string{"q0", "q1", "q2"}}, Max: 1 + l.rnd.IntN(5),
	})
	l.must(err)
	l.held = append(l.held, got...)
}

// drain completes all tasks that are ready: otherwise more and more of them would wait, and too few
// would ever be removed.
func (l *workload) drain() {
	for {
		granted, err := l.Lease(context.Background(), engine.LeaseRequest{
			Wants: engine.Wants{Space: home, Worker: "w", Queues: []string{"q0", "q1", "q2"}}, Max: 100,
		})
		l.must(err)
		if len(granted) == 0 {
			return
		}
		var reports []*lease.Report
		for _, g := range granted {
			reports = append(reports, &lease.Report{
				Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID,
				Result: &lease.Result{Output: l.bytes(500)},
			})
		}
		_, err = l.Judge(context.Background(), home.Tenant, reports)
		l.must(err)
	}
}

// report makes a call under a lease that was granted, whether or not it is still live.
func (l *workload) report() {
	if len(l.held) == 0 {
		return
	}
	i := len(l.held) - 1 - l.rnd.IntN(min(len(l.held), 6))
	if l.rnd.IntN(3) == 0 {
		i = l.rnd.IntN(len(l.held)) // an older one, probably lost
	}
	g := l.held[i]
	r := &lease.Report{Kind: lease.KindStart, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID}
	switch l.rnd.IntN(7) {
	case 0:
	case 1:
		r.Kind, r.Checkpoint = lease.KindHeartbeat, l.bytes(300)
	case 2:
		feeds := []engine.Feed{{TaskID: r.TaskID, LeaseID: r.LeaseID, Stage: "half", Message: "way"}}
		l.FeedAll(home.Tenant, l.ResolveFeeds(home.Tenant, feeds), func(bool) {})
		return
	case 3, 4:
		r.Kind, r.Result = lease.KindComplete, &lease.Result{Output: l.bytes(500)}
	case 5:
		r.Kind, r.Failure = lease.KindFail, &lease.Failure{Message: "broken", Stack: string(l.bytes(100))}
	case 6:
		r.Kind, r.Delay = lease.KindRelease, time.Second
	}
	_, err := l.Judge(context.Background(), home.Tenant, []*lease.Report{r})
	l.must(err)
	if r.Kind.Closes() && l.rnd.IntN(2) == 0 {
		l.held = append(l.held[:i], l.held[i+1:]...)
	}
}

func (l *workload) some() (id lease.TaskID) {
	if len(l.tasks) == 0 {
		return id
	}
	return l.tasks[len(l.tasks)-1-l.rnd.IntN(min(len(l.tasks), 40))]
}

func (l *workload) cancel() {
	_, err := l.Cancel(context.Background(), lease.Cancel{Tenant: home.Tenant, Task: l.some(), Reason: "no more", By: "ann"})
	l.mustOrRefused(err)
}

func (l *workload) retry() {
	_, err := l.Retry(context.Background(), lease.Retry{Tenant: home.Tenant, Task: l.some(), By: "ann"})
	l.mustOrRefused(err)
}

func (l *workload) remove() {
	l.mustOrRefused(l.Delete(context.Background(), lease.Delete{Tenant: home.Tenant, Task: l.some(), Force: true}))
}

func (l *workload) adopt() {
	_, err := l.Adopt(context.Background(), lease.Adopt{Tenant: home.Tenant, Task: l.some(), By: "ann"})
	l.mustOrRefused(err)
}

func (l *workload) settings() {
	_, err := l.UpdateQueue(context.Background(), home, fmt.Sprintf("q%d", l.rnd.IntN(3)), func(s *lease.Settings) {
		s.MaxInflight = uint32(20 + l.rnd.IntN(20))
	})
	l.must(err)
}

// credentials stores a new key and token, and deletes the ones before.
func (l *workload) credentials() {
	name := fmt.Sprintf("%016x", l.rnd.Uint64())
	key := records.SigningKey{Tenant: home.Tenant, ID: name, Secret: l.bytes(40), CreatedAt: l.Now().Wall}
	token := records.Token{Tenant: home.Tenant, ID: name, Role: "worker", Subject: "ann", Key: name, IssuedAt: l.Now().Wall}
	l.must(l.Keep(context.Background(), home.Tenant, func(b *store.Batch) {
		records.PutSigningKey(b, key)
		records.PutToken(b, token)
		if len(l.keys) > 0 {
			records.DropToken(b, l.tokens[0])
			records.DropSigningKey(b, l.keys[0])
		}
	}))
	l.keys, l.tokens = append(l.keys, key), append(l.tokens, token)
	if len(l.keys) > 1 {
		l.keys, l.tokens = l.keys[1:], l.tokens[1:]
	}
}

func (l *workload) audit() {
	l.must(l.Record(records.Audit{Tenant: home.Tenant, Subject: "ann", Action: "CancelTask", Outcome: records.OutcomeOK}))
}

// passTime lets fake time pass: a moment, or enough for leases, backoffs and retentions to end.
func (l *workload) passTime() {
	time.Sleep([]time.Duration{
		100 * time.Millisecond, 300 * time.Millisecond, time.Second, 2 * time.Second,
		11 * time.Second, time.Minute,
	}[l.rnd.IntN(6)])
}
