package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// heldDisk holds each commit until the test sends its result on the channel results, and records
// which new tasks each commit has.
type heldDisk struct {
	begun   [][]lease.TaskID // new tasks of each commit
	results chan error
}

func (d *heldDisk) commit(_ context.Context, b *store.Batch, apply func()) error {
	var tasks []lease.TaskID
	for i := range b.Len() {
		if op := b.At(i); op.Keyspace == store.Spec {
			id, _ := store.ParseTaskKey(op.Keyspace, op.Key)
			tasks = append(tasks, id)
		}
	}
	d.begun = append(d.begun, tasks)
	if err := <-d.results; err != nil {
		return err
	}
	apply()
	return nil
}

// install puts the disk under a running engine. It first submits two tasks, so that the engine
// knows the queue: for the first task of a new queue, the loop waits for the commit.
func (d *heldDisk) install(r *rig) *heldDisk {
	r.submit(work())
	r.submit(work())
	d.results = make(chan error)
	r.st.(*memstore.Store).SetHook(d.commit)
	return d
}

// submitConcurrently makes n Submit calls, each in its own goroutine. It starts each call when the
// loop has received the one before.
func submitConcurrently(r *rig, n int) (errs chan error) { return submitPayloads(r, n, 0) }

// submitPayloads is submitConcurrently for tasks with payloads of this size, in bytes.
func submitPayloads(r *rig, n, size int) (errs chan error) {
	errs = make(chan error, n)
	for range n {
		go func() {
			spec := work()
			spec.Payload = make([]byte, size)
			err := spec.Fill(lease.DefaultLimits())
			if err == nil {
				_, _, err = r.Submit(r.Context(), home, []*lease.Spec{spec}, make([]lease.Digest, 1))
			}
			errs <- err
		}()
		synctest.Wait()
	}
	return errs
}

// A6, design 4: all calls that arrive while a commit is under way share one commit after it, in the
// order of arrival. They are answered only after that commit.
func TestCallsDuringACommitShareTheNextCommit(t *testing.T) {
	t.Attr("rules", "A6")
	run(t, func(r *rig) {
		d := new(heldDisk).install(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		first := submitConcurrently(r, 1)
		rest := submitConcurrently(r, 5)
		if len(first)+len(rest) != 0 || len(d.begun) != 1 {
			r.Fatalf("%d answers and %d commits begun while the first commit is under way, want 0 and 1",
				len(first)+len(rest), len(d.begun))
		}
		d.results <- nil
		synctest.Wait()
		if len(first) != 1 || len(rest) != 0 {
			r.Errorf("after the first commit %d of its 1 calls and %d of the 5 later calls are answered, want 1 and 0",
				len(first), len(rest))
		}
		d.results <- nil
		synctest.Wait()
		if len(rest) != 5 {
			r.Errorf("after the second commit %d of the 5 later calls are answered, want 5", len(rest))
		}
		var last uint64
		for i, want := range []int{1, 5} {
			if got := d.begun[i]; len(got) != want {
				r.Errorf("commit %d has %d tasks, want %d", i, len(got), want)
			}
			for _, id := range d.begun[i] {
				if id.Seq <= last {
					r.Errorf("task %d follows task %d, want the order of arrival", id.Seq, last)
				}
				last = id.Seq
			}
		}
	})
}

// Design 4: callers who were answered together and call again at once share the next commit,
// although the disk is free when the first of them calls.
func TestCallersWhoComeBackShareACommit(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that no other thread writes the commit while they come back
	const callers, calls = 10, 20
	run(t, func(r *rig) {
		d := new(heldDisk).install(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		submitConcurrently(r, 1)
		for range callers {
			go func() {
				for range calls {
					submitOne(r)
				}
			}()
		}
		synctest.Wait()
		close(d.results) // from now on the disk holds nothing
		synctest.Wait()
		// Once in a while the scheduler runs the committer early, so some commits have fewer tasks.
		if got := len(d.begun); got > 1+calls*3/2 {
			r.Errorf("%d callers with %d calls each made %d commits, want about %d", callers, calls, got, 1+calls)
		}
	})
}

// Design 4: the size of a commit is bounded, even if more calls arrived while the commit before it
// was under way.
func TestCommitSizeIsBounded(t *testing.T) {
	bound(t, 100, &maxBatchOps)
	run(t, func(r *rig) {
		d := new(heldDisk).install(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		first := submitConcurrently(r, 1)
		rest := submitConcurrently(r, 5*maxBatchOps/2)
		for range 5 {
			d.results <- nil
			synctest.Wait()
			if len(first)+len(rest) == 1+5*maxBatchOps/2 {
				break
			}
		}
		if len(d.begun) < 3 {
			r.Errorf("%d calls were committed in %d commits, want at least 3", 1+5*maxBatchOps/2, len(d.begun))
		}
		for _, tasks := range d.begun {
			if len(tasks) > 2*maxBatchOps {
				r.Errorf("a commit has %d tasks, want at most %d", len(tasks), 2*maxBatchOps)
			}
		}
	})
}

// Design 4: the same for large payloads, of which a commit of all calls that may arrive would hold
// the disk for seconds.
func TestCommitBytesAreBounded(t *testing.T) {
	const calls, size = 60, 16 << 10
	bound(t, 8*size, &maxBatchBytes)
	run(t, func(r *rig) {
		d := new(heldDisk).install(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		first := submitConcurrently(r, 1)
		rest := submitPayloads(r, calls, size)
		close(d.results) // from now on the disk holds nothing
		synctest.Wait()
		if got := len(first) + len(rest); got != 1+calls {
			r.Errorf("%d calls have an answer, want %d", got, 1+calls)
		}
		for _, tasks := range d.begun {
			if len(tasks)*size > 2*maxBatchBytes {
				r.Errorf("a commit has %d payloads of %d bytes, want at most %d bytes in all", len(tasks), size, 2*maxBatchBytes)
			}
		}
	})
}

// Design 4: the same for calls that make many small tasks.
func TestCommitChangesAreBounded(t *testing.T) {
	const calls, each = 20, 25
	bound(t, 4*each, &maxBatchChanges)
	run(t, func(r *rig) {
		d := new(heldDisk).install(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		submitConcurrently(r, 1)
		for range calls {
			specs := many(each)
			for _, s := range specs {
				if err := s.Fill(lease.DefaultLimits()); err != nil {
					r.Fatal(err)
				}
			}
			go func() {
				if _, _, err := r.Submit(r.Context(), home, specs, make([]lease.Digest, each)); err != nil {
					r.Error(err)
				}
			}()
		}
		synctest.Wait()
		close(d.results) // from now on the disk holds nothing
		synctest.Wait()
		if q := r.queueInfo(); q.Ready != uint64(3+calls*each) {
			r.Errorf("%d tasks wait, want %d", q.Ready, 3+calls*each)
		}
		for _, tasks := range d.begun {
			if len(tasks) > 3*maxBatchChanges+each {
				r.Errorf("a commit has %d tasks, want at most %d and a call", len(tasks), 3*maxBatchChanges)
			}
		}
	})
}

// Design 4: a result that comes too late and is kept (V15) counts towards the bytes of its batch,
// as a result in time does.
func TestKeptResultCountsInItsBatch(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)[0]
		time.Sleep(lease.DefaultHeartbeatTimeout)
		late := &lease.Report{
			Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID,
			Result: &lease.Result{Output: make([]byte, 1000)},
		}
		grown := onLoop(r, func() int {
			before := r.batch().bytes
			r.judge(home.Tenant, []*lease.Report{late})
			return r.batch().bytes - before
		})
		if grown < 1000 || r.lateResult(g.Task.ID, 1) == nil {
			r.Errorf("a late result of 1000 bytes adds %d bytes to its batch, want at least 1000", grown)
		}
	})
}

// Design 4: everything that a producer or worker can make long counts towards the bytes of a batch,
// not only payloads and outputs: a task with a small payload can have 200 KB of labels, references
// and requirements.
func TestAllLongFieldsCountInTheirBatch(t *testing.T) {
	long := strings.Repeat("x", 250)
	table := map[string]string{long: long, "a" + long: long}
	submit := func(s lease.Spec) lease.Change { return lease.Change{New: &lease.Task{Spec: &s}} }
	old := &lease.Task{Spec: &lease.Spec{}}
	events := []lease.Event{{Detail: long, Actor: long}, {Detail: long, Actor: long}}
	for name, c := range map[string]lease.Change{
		"payload":        submit(lease.Spec{Payload: make([]byte, 1000)}),
		"labels":         submit(lease.Spec{Labels: table}),
		"requirements":   submit(lease.Spec{Requirements: &lease.Requirements{Labels: table}}),
		"references":     submit(lease.Spec{ResourceRefs: []lease.ResourceRef{{Metadata: table}}}),
		"trace":          submit(lease.Spec{Trace: &lease.Trace{Chain: []string{long, long, long, long}}}),
		"output":         {Old: old, New: old, Result: &lease.Result{Output: make([]byte, 1000)}},
		"artifacts":      {Old: old, New: old, Result: &lease.Result{Artifacts: []lease.Artifact{{Metadata: table}}}},
		"kept artifacts": {Old: old, New: old, Kept: []lease.Kept{{Result: &lease.Result{Artifacts: []lease.Artifact{{Metadata: table}}}}}},
		"gauges":         {Old: old, New: old, Failure: &lease.Failure{Metrics: map[string]float64{long: 1, "a" + long: 1, "b" + long: 1, "c" + long: 1}}},
		"history":        {Old: old, New: &lease.Task{Spec: old.Spec, History: events}, Row: true},
		"lease history":  {Old: old, New: &lease.Task{Spec: old.Spec, Lease: &lease.Lease{Events: events}}},
	} {
		if n := size(&c); n < 1000 {
			t.Errorf("%s of 1000 bytes: the size of the change is %d", name, n)
		}
	}
	if n := size(&lease.Change{Old: old}); n != 0 {
		t.Errorf("the size of a removal is %d, want 0", n)
	}
}

// A6: answers are delivered in the order of the commits, even if the delivery of an earlier one
// takes long.
func TestAnswersKeepTheOrderOfCommits(t *testing.T) {
	t.Attr("rules", "A6")
	run(t, func(r *rig) {
		heard := make(chan struct{})
		r.Join(&Member{
			Session: NewSessionID(home.Tenant, "w", "slow"), Slots: 1, Deliver: func([]Granted) { <-heard },
			Notify: func([]Notice) {}, Displaced: func(string) {},
			Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}},
		})
		submitConcurrently(r, 1) // the delivery of its grant blocks until heard is closed
		if later := submitConcurrently(r, 1); len(later) != 0 {
			r.Error("a later commit was answered first")
		}
		close(heard)
	})
}

// A6: if a batch changes a task several times, everything that one of the changes stores beside the
// task is durable, also what a later change of the batch does not touch: the output, the failure,
// the checkpoint.
func TestBatchKeepsWhatEachOfItsChangesStores(t *testing.T) {
	t.Attr("rules", "A6")
	run(t, func(r *rig) {
		ids := r.submit(many(4)...)
		g := r.lease(4, 0)
		post := func(n int, reports ...lease.Report) {
			for i := range reports { // each in a step of its own
				report := &reports[i]
				report.TaskID, report.LeaseID = g[n].Task.ID.String(), g[n].LeaseID
				if err := r.Post(home.Tenant, []*lease.Report{report}, func([]lease.Answer, error) {}); err != nil {
					r.Error(err)
				}
			}
		}
		begin := func(call func() error) {
			go func() {
				if err := call(); err != nil {
					r.Error(err)
				}
			}()
			synctest.Wait()
		}
		cancel := func(n int) {
			begin(func() error {
				_, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: ids[n].ID})
				return err
			})
		}
		start, renew, half := lease.Report{Kind: lease.KindStart}, lease.Report{Kind: lease.KindHeartbeat},
			lease.Report{Kind: lease.KindHeartbeat, Checkpoint: []byte("half")}
		complete := lease.Report{Kind: lease.KindComplete, Result: &lease.Result{Output: []byte("done")}}
		fail := lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{Message: "broken"}}
		r.inOneBatch(func() {
			post(0, start, half, renew, complete, fail) // the Fail is refused
			post(1, half, start, fail)
			cancel(1)
			post(2, renew)
			cancel(2)
			post(2, renew)
			post(3, complete)
			begin(func() error { return r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: ids[3].ID}) })
		})
		r.kill()
		for n, want := range []string{"COMPLETED, checkpoint half, output done", "CANCELLED, checkpoint half, failure broken", "CANCELLING, checkpoint "} {
			got := r.version(ids[n].ID).State().String()
			err := r.st.View(func(rd store.Reader) error {
				checkpoint, err1 := records.Checkpoint(rd, ids[n].ID)
				output, err2 := records.Result(rd, ids[n].ID)
				failure, err3 := records.Failure(rd, ids[n].ID)
				if got += ", checkpoint " + string(checkpoint); output != nil {
					got += ", output " + string(output.Output)
				}
				if failure != nil {
					got += ", failure " + failure.Message
				}
				return errors.Join(err1, err2, err3)
			})
			if err != nil || got != want {
				r.Errorf("after a crash, task %d is %q (%v), want %q", n, got, err, want)
			}
		}
		if a := r.say(lease.KindComplete, g[3]); !a.Replayed {
			r.Errorf("the repeated Complete of the deleted task is answered %+v, want a replay", a)
		}
		time.Sleep(lease.LedgerAfterDelete + time.Second)
		r.want(r.say(lease.KindComplete, g[3]), lease.VerdictCancelled, lease.TaskGone)
	})
}

// A10, design 4: when a commit fails, all calls that wait get ErrStore: calls whose changes are
// already in the next batch, calls that are still in the inbox, and a call that changed nothing.
// The engine begins no later commit.
func TestFailedCommitFailsAllWaitingCalls(t *testing.T) {
	t.Attr("rules", "A10")
	for _, later := range []int{0, 1, 5 * maxBatchOps / 2} {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{T: t, st: memstore.New()}
			r.start(Config{})
			d := new(heldDisk).install(r)
			first := submitConcurrently(r, 1)
			readOnly := make(chan error, 1)
			go func() {
				_, err := ask(r.Context(), r.Engine, home.Tenant, func() (int, error) { return 0, nil })
				readOnly <- err
			}()
			synctest.Wait()
			rest := submitConcurrently(r, later)
			d.results <- errors.New("EIO")
			if err := <-r.done; !errors.Is(err, ErrStore) {
				t.Errorf("Run returned %v", err)
			}
			synctest.Wait()
			for _, errs := range []chan error{first, readOnly, rest} {
				if len(errs) != cap(errs) {
					t.Fatalf("%d of %d calls were answered, want all", len(errs), cap(errs))
				}
				for range cap(errs) {
					if err := <-errs; !errors.Is(err, ErrStore) {
						t.Fatalf("a call got %v, want ErrStore", err)
					}
				}
			}
			if len(d.begun) != 1 {
				t.Errorf("%d commits were begun, want only the one that failed", len(d.begun))
			}
		})
	}
}

// A10, design 4: a failed commit ends the engine at once, even if no further call arrives.
func TestFailedCommitEndsAnIdleEngine(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		d := new(heldDisk).install(r)
		submitConcurrently(r, 1)
		d.results <- errors.New("EIO")
		synctest.Wait()
		if len(r.done) != 1 {
			t.Error("the engine did not end after the failed commit")
			r.stop()
		}
		if err := <-r.done; !errors.Is(err, ErrStore) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// A10: a call for work waits for a task up to its wait time; after that its empty answer waits only
// for the commit before it. If that commit fails, the call gets ErrStore. So does a call that began
// during that commit, and one that still waits gets it at the end of its wait time.
func TestFailedCommitAnswersCallsForWork(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		d := new(heldDisk).install(r)
		call := func(wait time.Duration) <-chan error {
			answer := make(chan error, 1)
			go func() {
				_, err := r.Lease(t.Context(),
					LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"empty"}}, Max: 1, Wait: wait})
				answer <- err
			}()
			synctest.Wait()
			return answer
		}
		waits, waited := call(time.Minute), call(time.Second)
		submitConcurrently(r, 1)
		began := call(time.Minute)
		time.Sleep(time.Second)
		synctest.Wait() // the empty answer now waits for the commit
		d.results <- errors.New("EIO")
		if err := <-r.done; !errors.Is(err, ErrStore) {
			t.Errorf("Run returned %v", err)
		}
		synctest.Wait()
		if len(waited) != 1 || len(began) != 1 {
			t.Fatalf("%d calls that waited and %d calls that began were answered when the commit failed, want 1 and 1",
				len(waited), len(began))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(waits) != 1 {
			t.Fatal("a call was not answered at the end of its wait time")
		}
		for _, answer := range []<-chan error{waited, began, waits} {
			if err := <-answer; !errors.Is(err, ErrStore) {
				t.Errorf("a call got %v, want ErrStore", err)
			}
		}
	})
}

// stubbornStore is a store whose Begin fails once.
type stubbornStore struct {
	*memstore.Store
	fails atomic.Bool
}

// Begin implements store.Store.
func (s *stubbornStore) Begin(ctx context.Context) (store.Tx, error) {
	if s.fails.CompareAndSwap(true, false) {
		return nil, errors.New("EMFILE")
	}
	return s.Store.Begin(ctx)
}

// A6, A10: if the first batch of a commit cannot be applied, the commit fails with all its batches,
// even if the next batch could be applied.
func TestBatchThatCannotBeAppliedFailsItsCommit(t *testing.T) {
	t.Attr("rules", "A6 A10")
	synctest.Test(t, func(t *testing.T) {
		st := &stubbornStore{Store: memstore.New()}
		r := &rig{T: t, st: st}
		r.start(Config{})
		r.submit(work())
		d := &heldDisk{results: make(chan error, 2)}
		st.SetHook(d.commit)
		first := submitConcurrently(r, 1)
		st.fails.Store(true)
		rest := submitConcurrently(r, 2) // each is a batch of the next commit
		d.results <- nil
		d.results <- nil
		if err := <-first; err != nil {
			t.Errorf("the call of the first commit got %v, want no error", err)
		}
		for range 2 {
			if err := <-rest; !errors.Is(err, ErrStore) {
				t.Errorf("a call of the second commit got %v, want ErrStore", err)
			}
		}
		if err := <-r.done; !errors.Is(err, ErrStore) {
			t.Errorf("Run returned %v, want ErrStore", err)
		}
	})
}

// A6: records that the engine keeps for others, and audit entries, are durable once the call has
// returned, also if nothing else changes.
func TestKeptRecordsAreDurable(t *testing.T) {
	t.Attr("rules", "A6")
	run(t, func(r *rig) {
		key := records.SigningKey{Tenant: home.Tenant, ID: "k"}
		if err := r.Keep(r.Context(), home.Tenant, func(b *store.Batch) { records.PutSigningKey(b, key) }); err != nil {
			r.Fatal(err)
		}
		r.kill()
		if err := r.Record(records.Audit{Tenant: home.Tenant, Action: "looked"}); err != nil {
			r.Fatal(err)
		}
		r.kill()
		keys, entries := 0, 0
		err := r.st.View(func(rd store.Reader) error {
			return errors.Join(
				records.SigningKeys(rd, func(records.SigningKey) error { keys++; return nil }),
				records.Audits(rd, store.AuditKey{Tenant: home.Tenant}, func(*records.Audit) bool { entries++; return true }),
			)
		})
		if err != nil || keys != 1 || entries != 1 {
			r.Errorf("after a crash there are %d keys and %d audit entries (%v), want 1 and 1", keys, entries, err)
		}
	})
}

// X4: calls that share a batch have an audit entry each.
func TestEachCallOfABatchLeavesItsAuditEntry(t *testing.T) {
	t.Attr("rules", "X4")
	run(t, func(r *rig) {
		r.inOneBatch(func() {
			for _, corr := range []string{"a", "b", "c"} {
				go func() {
					if err := r.Record(records.Audit{Tenant: home.Tenant, Corr: corr}); err != nil {
						r.Error(err)
					}
				}()
				synctest.Wait()
			}
		})
		var corrs []string
		err := r.st.View(func(rd store.Reader) error {
			return records.Audits(rd, store.AuditKey{Tenant: home.Tenant}, func(a *records.Audit) bool {
				corrs = append(corrs, a.Corr)
				return true
			})
		})
		if slices.Sort(corrs); err != nil || !slices.Equal(corrs, []string{"a", "b", "c"}) {
			r.Errorf("the audit entries are %v (%v), want one for each of a, b, c", corrs, err)
		}
	})
}

// Each round begins with all that the committer has to say. Otherwise, while the loop has no rest,
// the answers to all callers would wait for many rounds.
func TestRoundHearsTheCommitter(t *testing.T) {
	h := newManualEngine(t, 1, 2)
	h.expireDue() // reads the first timers, for which it would wait for the committer
	first := h.batch()
	h.submitSpecs(h.specs(1))
	h.pipeline.committer.asks <- struct{}{}
	h.round()
	if len(h.pipeline.committer.batches) != 1 {
		t.Fatal("the committer asked for a batch and got none")
	}
	<-h.pipeline.committer.batches
	h.submitSpecs(h.specs(1))
	h.pipeline.committer.done <- []*batch{first}
	h.pipeline.committer.asks <- struct{}{}
	h.round()
	if len(h.pipeline.committer.batches) != 1 || len(h.pipeline.inflight) != 1 || h.pipeline.inflight[0] == first {
		t.Errorf("%d batches are under way, and the committer got %d, want only the second one",
			len(h.pipeline.inflight), len(h.pipeline.committer.batches))
	}
}
