package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
)

// Leases that a program of format 1 granted in testdata/format1.db.gz, by the sequence number of
// their task. Task 4 is completed with "out", task 3 failed, and task 2 is live with the checkpoint
// "half". Task 1 waits with the payload "hello", task 5 until the year 2100.
var format1 = map[uint64]string{
	4: "AAAAAQAAAQAAAAAAAAQAAAABYWh1TR1u6-ZrQx-k01qL7Mnw-XXWqJaO",
	3: "AAAAAQAAAQAAAAAAAAMAAAABgPFyTGKX-xiYtgfMoAVIJ6IiI17IZgNM",
	2: "AAAAAQAAAQAAAAAAAAIAAAABPhgiB34g8CFcbYXZAkXBy1y-wa2Ri7vL",
}

// A store of format 1 is upgraded at the start. Its live lease, verdicts, payloads and retries are
// kept.
func TestUpgradeFromFormat1(t *testing.T) {
	t.Attr("rules", "A9 A10")
	runOnOldStore(t, "testdata/format1.db.gz", func(r *rig) {
		say := func(seq uint64, kind lease.Kind, result *lease.Result) lease.Answer {
			a, err := r.Judge(context.Background(), "default", []*lease.Report{{
				Kind: kind, TaskID: lease.TaskID{Space: 1, Seq: seq}.String(), LeaseID: format1[seq], Result: result,
			}})
			if err != nil {
				r.Fatal(err)
			}
			return a[0]
		}
		if a := say(4, lease.KindComplete, &lease.Result{Output: []byte("out")}); !a.Replayed {
			r.Errorf("the repeated Complete of task 4 is answered %+v, want a replay", a)
		}
		r.want(say(4, lease.KindComplete, &lease.Result{Output: []byte("other")}), lease.VerdictRejected, lease.DuplicateReport)
		r.want(say(2, lease.KindHeartbeat, nil), lease.VerdictCommitted, lease.None)
		time.Sleep(2 * time.Second) // the backoff
		wants := Wants{Space: Space{"default", "default"}, Worker: "w", Queues: []string{"q", "later"}, Types: []string{"a"}}
		g, err := r.Lease(context.Background(), LeaseRequest{Wants: wants, Max: 10})
		if err != nil || sequencesOf(g) != "3 1" || g[0].Task.Attempt() != 2 || g[0].Task.Spec.Priority != 2 {
			r.Fatalf("granted tasks %s (%v), want the retry of 3 and then 1", sequencesOf(g), err)
		}
		r.want(say(2, lease.KindComplete, &lease.Result{}), lease.VerdictCommitted, lease.None)
		err = r.st.View(func(rd store.Reader) error {
			payload, err := records.Payload(rd, lease.TaskID{Space: 1, Seq: 1})
			if string(payload) != "hello" {
				r.Errorf("the payload of task 1 is %q, want %q", payload, "hello")
			}
			return err
		})
		if err != nil {
			r.Error(err)
		}
		q, found, err := r.Queue(context.Background(), wants.Space, "q", 0)
		if !found || err != nil || q.Leased != 2 || q.Ready != 0 || q.Scheduled != 0 {
			r.Errorf("queue q: found %v, %+v, %v; want 2 leased, 0 READY and 0 SCHEDULED tasks", found, q, err)
		}
	})
}

// The lease that a program of format 2 granted in testdata/format2.db.gz: of task 1, with the
// concurrency key "k", under which task 3 is parked. Task 4 waits in the run "r" with the fairness
// key "f", task 5 in another line; max_inflight of the queue is 10.
const format2 = "AAAAAQAAAQAAAAAAAAEAAAAByLF2MWZ_Fhtb3AUULzfdve6We9BCG3Go"

// A store of format 2 is upgraded at the start: its tasks have no requirements, and are granted in
// their lines as before.
func TestUpgradeFromFormat2(t *testing.T) {
	t.Attr("rules", "A9 A10 T11 W12")
	runOnOldStore(t, "testdata/format2.db.gz", func(r *rig) {
		space := Space{"default", "default"}
		a, err := r.Judge(context.Background(), "default", []*lease.Report{{
			Kind: lease.KindComplete, TaskID: lease.TaskID{Space: 1, Seq: 1}.String(), LeaseID: format2, Result: &lease.Result{},
		}})
		if err != nil {
			r.Fatal(err)
		}
		r.want(a[0], lease.VerdictCommitted, lease.None)
		g, err := r.Lease(context.Background(),
			LeaseRequest{Wants: Wants{Space: space, Worker: "w", Queues: []string{"q"}}, Max: 10})
		if err != nil || len(g) != 3 {
			r.Fatalf("granted tasks %s (%v), want 3, 4 and 5", sequencesOf(g), err)
		}
		for _, granted := range g {
			s := granted.Task.Spec
			if s.Class() != "" || s.Trace != nil || granted.Task.ID.Seq == 4 && (s.FairnessKey != "f" || s.RunID != "r") {
				r.Errorf("task %d has the spec %+v, want no class and no trace, and for task 4 the fairness key f and the run r", granted.Task.ID.Seq, s)
			}
		}
		q, found, err := r.Queue(context.Background(), space, "q", 0)
		if !found || err != nil || q.Leased != 3 || q.Settings.MaxInflight != 10 {
			r.Errorf("queue q: found %v, %+v, %v; want 3 leased tasks and max_inflight 10", found, q, err)
		}
	})
}

// The lease that a program of format 3 granted in testdata/format3.db.gz: of task 1, which is
// mounted on "h". Task 2 requires a "gpu"; its payload is "hello".
const format3 = "AAAAAQAAAQAAAAAAAAEAAAABDu4sshADOnD2i222pz8dEPeHdM7h0g7P"

// A store of format 3, which has no credentials, is upgraded at the start, and can then store a
// token.
func TestUpgradeFromFormat3(t *testing.T) {
	t.Attr("rules", "A9 A10 X1")
	runOnOldStore(t, "testdata/format3.db.gz", func(r *rig) {
		a, err := r.Judge(context.Background(), "default", []*lease.Report{{
			Kind: lease.KindComplete, TaskID: lease.TaskID{Space: 1, Seq: 1}.String(), LeaseID: format3, Result: &lease.Result{},
		}})
		if err != nil {
			r.Fatal(err)
		}
		r.want(a[0], lease.VerdictCommitted, lease.None)
		wants := Wants{
			Space: Space{"default", "default"}, Worker: "w", Queues: []string{"q"},
			Capabilities: lease.Capabilities{Features: []string{"gpu"}},
		}
		g, err := r.Lease(context.Background(), LeaseRequest{Wants: wants, Max: 10})
		if err != nil || len(g) != 1 {
			r.Fatalf("granted tasks %s (%v), want the one that requires a gpu", sequencesOf(g), err)
		}
		before := storedTokens(r)
		if err := r.Keep(t.Context(), "default", func(b *store.Batch) { records.PutToken(b, records.Token{Tenant: "default", ID: "x"}) }); err != nil {
			r.Fatal(err)
		}
		if after := storedTokens(r); before != 0 || after != 1 {
			r.Errorf("%d tokens before and %d after a token is stored, want 0 and 1", before, after)
		}
	})
}

func storedTokens(r *rig) (n int) {
	err := r.st.View(func(rd store.Reader) error {
		return records.Tokens(rd, func(records.Token) error { n++; return nil })
	})
	if err != nil {
		r.Error(err)
	}
	return n
}

var updateGolden = flag.Bool("update", false, "make the golden store of the newest format anew; only while no release has it")

// The stores of formats 4 to 10 have records of every keyspace; a file beside each has the lease id
// of its task 1. Never change these files: a program that writes records in another way must still
// read all of them, or raise the format and upgrade them.
const (
	format9       = "testdata/format9.db.gz"
	format10      = "testdata/format10.db.gz"
	format10Lease = "testdata/format10.lease"
)

// A store of format 4 is upgraded at the start, and its lease stays live. Its specs do not hold the
// first state of their tasks; each task has a record of its state instead.
func TestUpgradeFromFormat4(t *testing.T) {
	t.Attr("rules", "A9 A10")
	checkGoldenStore(t, "testdata/format4.db.gz", "testdata/format4.lease", func(*rig) {})
}

// A store of format 5 is upgraded at the start, and its lease stays live. Its queues do not store
// how much of their rate limits is used up.
func TestUpgradeFromFormat5(t *testing.T) {
	t.Attr("rules", "A9 A10")
	checkGoldenStore(t, "testdata/format5.db.gz", "testdata/format5.lease", func(*rig) {})
}

// A store of format 6 is upgraded at the start; its lease stays live, and its rate limit is still
// used up. Its sums have no checksum.
func TestUpgradeFromFormat6(t *testing.T) {
	t.Attr("rules", "A9 A10 T13")
	checkGoldenStore(t, "testdata/format6.db.gz", "testdata/format6.lease", func(r *rig) {
		r.wantRateLimitUsedUp()
		r.wantEndedCounted(0, 0)
	})
}

// A store of format 7 is upgraded at the start; its lease stays live, and its rate limit is still
// used up. Its tasks are not in the index of runs, and are found.
func TestUpgradeFromFormat7(t *testing.T) {
	t.Attr("rules", "A9 A10 T13")
	checkGoldenStore(t, "testdata/format7.db.gz", "testdata/format7.lease", func(r *rig) {
		r.wantTasksOfRun(21)
		r.wantRateLimitUsedUp()
		late := r.submit(&lease.Spec{Queue: "q", RunID: "run"})[0]
		r.wantTasksOfRun(21, late.ID.Seq)
		r.verify()
	})
}

// A store of format 8 is upgraded at the start; its lease stays live, its rate limit is still used
// up, the task of its run is found, and its idempotency key is known. No task of it requires a
// package.
func TestUpgradeFromFormat8(t *testing.T) {
	t.Attr("rules", "A9 A10 T13")
	checkGoldenStore(t, "testdata/format8.db.gz", "testdata/format8.lease", func(r *rig) {
		r.wantKeys("once")
		r.wantTasksOfRun(21)
		r.wantRateLimitUsedUp()
	})
}

// A store of format 9 is upgraded at the start; its lease stays live. Its queues do not tell the
// states of ended tasks: only those of new tasks are counted.
func TestUpgradeFromFormat9(t *testing.T) {
	t.Attr("rules", "A9 A10")
	checkGoldenStore(t, format9, "testdata/format9.lease", func(r *rig) { r.wantEndedCounted(0, 0) })
}

// A store of format 10, the present one, stays readable; its lease stays live, its rate limit is
// still used up, the task of its run is found, one of its tasks requires a package, its idempotency
// keys are known, and its queues tell how many tasks were COMPLETED and FAILED.
func TestStoreOfFormat10(t *testing.T) {
	t.Attr("rules", "A9 A10 T1 T9 T13 W13")
	if *updateGolden {
		makeGolden(t)
	}
	checkGoldenStore(t, format10, format10Lease, func(r *rig) {
		r.wantTasksOfRun(21)
		r.wantRateLimitUsedUp()
		wants := Wants{Space: home, Worker: "w", Queues: []string{"packages"}}
		if g := r.leaseFrom("packages"); len(g) != 0 {
			r.Errorf("granted tasks %s to a worker without the package, want none", sequencesOf(g))
		}
		wants.Capabilities.Packages = []string{"model@2"}
		if g, err := r.Lease(r.Context(), LeaseRequest{Wants: wants, Max: 10}); err != nil || len(g) != 1 {
			r.Errorf("%d grants (%v) to a worker with the package, want 1", len(g), err)
		}
		r.wantKeys("once", "twice", "thrice")
		r.wantEndedCounted(2, 2) // task 1 was completed now
	})
}

// wantEndedCounted checks how many tasks of a golden store are counted as COMPLETED and FAILED, and
// that new ones are counted, also after a start.
func (r *rig) wantEndedCounted(completed, failed uint64) {
	r.Helper()
	for range 2 {
		if q := r.queueInfo(); q.Completed != completed || q.Failed != failed || q.Cancelled != 0 {
			r.Errorf("%d COMPLETED, %d FAILED and %d CANCELLED tasks are counted, want %d, %d and 0",
				q.Completed, q.Failed, q.Cancelled, completed, failed)
		}
		late := r.submit(work())[0].ID
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: late}); err != nil {
			r.Fatal(err)
		}
		r.restart(Config{})
		if q := r.queueInfo(); q.Cancelled != 1 {
			r.Errorf("%d CANCELLED tasks are counted, want the new one", q.Cancelled)
		}
		if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: late}); err != nil {
			r.Fatal(err)
		}
		r.restart(Config{Recovery: RestoredStore}) // skips sequences
	}
	r.verify()
}

// wantTasksOfRun checks which tasks the store has of the run "run".
func (r *rig) wantTasksOfRun(want ...uint64) {
	r.Helper()
	var got []uint64
	err := r.st.View(func(rd store.Reader) error {
		return records.Tasks(rd, 1, "run", 0, func(t *lease.Task) bool {
			if t.Spec.RunID == "run" {
				got = append(got, t.ID.Seq)
			}
			return true
		})
	})
	if err != nil || !slices.Equal(got, want) {
		r.Errorf("tasks %v of the run (%v), want %v", got, err, want)
	}
}

// wantKeys checks that a submit with each of these idempotency keys makes no new task.
func (r *rig) wantKeys(all ...string) {
	r.Helper()
	for _, key := range all {
		s := work()
		s.IdempotencyKey = key
		if err := s.Fill(lease.DefaultLimits()); err != nil {
			r.Fatal(err)
		}
		_, _, err := r.Submit(r.Context(), home, []*lease.Spec{s}, []lease.Digest{{1}})
		if _, exists := errors.AsType[*lease.ExistsError](err); !exists {
			r.Errorf("a submit of another spec with the key %q is answered with %v, want a *lease.ExistsError (T1)", key, err)
		}
	}
}

// wantRateLimitUsedUp checks that the queue with a rate limit grants nothing, and one task after a
// minute.
func (r *rig) wantRateLimitUsedUp() {
	r.Helper()
	if g := r.leaseFrom("slow"); len(g) != 0 {
		r.Errorf("granted tasks %s of a queue whose rate limit is used up, want none", sequencesOf(g))
	}
	time.Sleep(time.Minute)
	if g := r.leaseFrom("slow"); len(g) != 1 {
		r.Errorf("%d grants after the minute that the rate limit asks for, want 1", len(g))
	}
}

// checkGoldenStore starts an engine on a copy of a golden store. It checks that every keyspace has
// records, that verify finds no fault, and that the lease of task 1 is still live. Then it runs
// test.
func checkGoldenStore(t *testing.T, file, leaseFile string, test func(*rig)) {
	t.Helper()
	id, err := os.ReadFile(leaseFile)
	if err != nil {
		t.Fatal(err)
	}
	runOnOldStore(t, file, func(r *rig) {
		err := r.st.View(func(rd store.Reader) error {
			for ks := range store.Keyspace(store.NumKeyspaces) {
				n := 0
				if err := rd.Scan(ks, nil, nil, func(_, _ []byte) bool { n++; return true }); err != nil {
					return err
				}
				if elsewhere := slices.Contains(notInGolden(file), ks); (n == 0) != elsewhere {
					r.Errorf("the store has %d records in keyspace %v, want at least one: %t", n, ks, !elsewhere)
				}
			}
			return nil
		})
		if err != nil {
			r.Error(err)
		}
		r.verify()
		a, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{{
			Kind: lease.KindComplete, TaskID: lease.TaskID{Space: 1, Seq: 1}.String(), LeaseID: string(id),
			Result: &lease.Result{},
		}})
		if err != nil {
			r.Fatal(err)
		}
		r.want(a[0], lease.VerdictCommitted, lease.None)
		test(r)
		r.shutDown() // a day costs nothing while no engine counts the seconds of the live leases
		time.Sleep(lease.DefaultRetention + time.Hour)
		r.start(Config{})
		synctest.Wait()
		if r.version(lease.TaskID{Space: 1, Seq: 4}) != nil {
			r.Error("a completed task is there after its retention")
		}
		// The deferred shutDown checks that all counts are still right.
	})
}

// notInGolden returns the keyspaces in which a golden store has no records.
func notInGolden(file string) []store.Keyspace {
	if file == format9 || file == format10 {
		return []store.Keyspace{store.Line, store.Idempotency} // only older formats had records there
	}
	return []store.Keyspace{store.Line, store.KeyLog, store.KeySegment, store.TimerLog}
}

// leaseFrom leases up to 10 tasks of one queue.
func (r *rig) leaseFrom(queue string) []Granted {
	r.Helper()
	g, err := r.Lease(r.Context(), LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{queue}}, Max: 10})
	if err != nil {
		r.Fatal(err)
	}
	return g
}

// makeGolden makes the store of format 10 anew.
func makeGolden(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	var id string
	synctest.Test(t, func(t *testing.T) {
		st, err := boltstore.Open(dir, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{T: t, st: st}
		r.start(Config{KeySegment: 2})
		id = r.fillGolden()
		r.shutDown()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	})
	content, err := os.ReadFile(filepath.Join(dir, "lessor.db"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid, so there is no error
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(format10, packed.Bytes(), 0o600), os.WriteFile(format10Lease, []byte(id), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// fillGolden fills the store with records of every keyspace, and returns the id of the live lease
// of task 1.
func (r *rig) fillGolden() string {
	r.Helper()
	spec := func(change func(*lease.Spec)) *lease.Task {
		s := work()
		change(s)
		return r.submit(s)[0]
	}
	say := func(g Granted, rep lease.Report) {
		rep.TaskID, rep.LeaseID = g.Task.ID.String(), g.LeaseID
		if _, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{&rep}); err != nil {
			r.Fatal(err)
		}
	}
	spec(func(s *lease.Spec) { s.HeartbeatTimeout = time.Hour })
	live := r.lease(1, 0)[0]
	say(live, lease.Report{Kind: lease.KindHeartbeat, Checkpoint: []byte("half")})

	spec(func(s *lease.Spec) { s.Retry.MaxAttempts = 1 })
	failed := r.lease(1, 0)[0]
	r.feed(home.Tenant, Feed{TaskID: failed.Task.ID.String(), LeaseID: failed.LeaseID, Message: "half way"})
	say(failed, lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{Message: "broken"}})

	spec(func(s *lease.Spec) { s.Retry.MaxLosses = 1 })
	late := r.lease(1, 0)[0]
	say(late, lease.Report{Kind: lease.KindStart})
	time.Sleep(lease.DefaultHeartbeatTimeout)
	say(late, lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte("late")}})

	spec(func(*lease.Spec) {})
	say(r.lease(1, 0)[0], lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte("done")}})

	again := spec(func(s *lease.Spec) { s.Retry.InitialBackoff = time.Minute })
	say(r.lease(1, 0)[0], lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{Message: "once more"}})

	for range 2 {
		spec(func(s *lease.Spec) { s.ConcurrencyKey, s.ConcurrencyLimit, s.HeartbeatTimeout = "key", 1, time.Hour })
	}
	r.lease(2, 0) // grants one, and parks the other, for which the key has no room
	spec(func(s *lease.Spec) {
		s.RunID, s.Trace, s.IdempotencyKey = "run", &lease.Trace{Host: again.ID.String()}, "once"
	})
	spec(func(s *lease.Spec) { s.RunAt = r.Now().Wall + lease.Wall(time.Hour) })

	_, err := r.UpdateQueue(r.Context(), home, "q", func(s *lease.Settings) { s.MaxInflight = 10 })
	if err == nil {
		_, err = r.UpdateQueue(r.Context(), home, "slow", func(s *lease.Settings) { s.Rate.PerSecond = 1.0 / 60 })
	}
	for range 2 {
		spec(func(s *lease.Spec) { s.Queue = "slow" })
	}
	r.leaseFrom("slow") // grants one of them
	spec(func(s *lease.Spec) { s.Queue, s.Requirements = "packages", &lease.Requirements{Package: "model"} })
	spec(func(s *lease.Spec) { s.Queue, s.IdempotencyKey = "keys", "twice" })
	synctest.Wait() // until there is a segment of two keys
	spec(func(s *lease.Spec) { s.Queue, s.IdempotencyKey = "keys", "thrice" })
	if err == nil {
		err = r.Keep(r.Context(), home.Tenant, func(b *store.Batch) {
			records.PutSigningKey(b, records.SigningKey{Tenant: home.Tenant, ID: "key", Secret: []byte("secret")})
			records.PutToken(b, records.Token{Tenant: home.Tenant, ID: "token", Role: "worker", Subject: "ann", Key: "key"})
		})
	}
	if err == nil {
		err = r.Record(records.Audit{Tenant: home.Tenant, Subject: "ann", Action: "CancelTask", Outcome: records.OutcomeOK})
	}
	if err != nil {
		r.Fatal(err)
	}
	return live.LeaseID
}

// runOnOldStore runs test in a bubble, with an engine over a store that an earlier program wrote.
// Verify finds nothing in it before its upgrade either.
func runOnOldStore(t *testing.T, file string, test func(*rig)) {
	t.Helper()
	dir := t.TempDir()
	unpack(t, file, filepath.Join(dir, "lessor.db"))
	old, err := boltstore.OpenReadOnly(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	(&rig{T: t, st: old}).verify()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		st, err := boltstore.Open(dir, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		r := &rig{T: t, st: st}
		r.start(Config{})
		defer r.shutDown()
		test(r)
	})
}

// unpack writes the content of a compressed file.
func unpack(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	content, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, content); err != nil { //nolint:gosec // our own file
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
