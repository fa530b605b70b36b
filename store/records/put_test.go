package records_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// operations returns the keyspaces of the changes of a batch, sorted, with + for a put and - for a
// delete.
func operations(b *store.Batch) string {
	var all []string
	for i := range b.Len() {
		op := b.At(i)
		verb := "+"
		if op.Delete {
			verb = "-"
		}
		all = append(all, verb+op.Keyspace.String())
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Put writes only the records that a change concerns. A submit writes the spec, which is never
// written again; a renewal writes only the lease.
func TestPutWritesWhatChanged(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	w.submit(lease.Spec{
		Queue: "q", IdempotencyKey: "key", StartTimeout: time.Hour, Deadline: w.now.Wall.Add(time.Hour),
		RunAt: w.now.Wall.Add(time.Second),
	})
	task := id(1)
	for _, tt := range []struct {
		name string
		do   func()
		want string
	}{
		{"submit", func() {}, "+keylog +spec"},
		{"run_at passes", func() { w.pass(time.Second); w.step(lease.Expire{Task: task}) }, "+ready +task"},
		{"grant", func() { w.step(lease.Grant{Task: task, Session: "s"}) }, "+lease -ready"},
		{"ack", func() { w.say(task, lease.Report{Kind: lease.KindAck}) }, "+lease"},
		{"start", func() { w.say(task, lease.Report{Kind: lease.KindStart}) }, "+lease"},
		{"renewal", func() { w.say(task, lease.Report{Kind: lease.KindHeartbeat}) }, "+lease"},
		{"first checkpoint", func() { w.say(task, lease.Report{Kind: lease.KindHeartbeat, Checkpoint: []byte("1")}) }, "+checkpoint +lease +task"},
		{"checkpoint", func() { w.say(task, lease.Report{Kind: lease.KindHeartbeat, Checkpoint: []byte("2")}) }, "+checkpoint +lease"},
		{"stall", func() { w.step(lease.Stall{Task: task, By: time.Second}) }, "+lease"},
		{"fail", func() { w.say(task, lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{}}) }, "+failure +ledger +task -lease"},
		{"backoff passes", func() { w.pass(time.Minute); w.step(lease.Expire{Task: task}) }, "+ready +task"},
		{"grant again", func() { w.step(lease.Grant{Task: task}) }, "+lease -ready"},
		{"expiry", func() { w.pass(2 * time.Minute); w.step(lease.Expire{Task: task}) }, "+ready +task -lease"},
		{"cancel", func() { w.step(lease.Cancel{Tenant: "acme", Task: task}) }, "+task +timer -ready"},
		{"retry", func() { w.step(lease.Retry{Tenant: "acme", Task: task}) }, "+ready +task -timer"},
		{"third grant", func() { w.step(lease.Grant{Task: task}) }, "+lease -ready"},
		{"complete", func() { w.say(task, lease.Report{Kind: lease.KindComplete, Result: &lease.Result{}}) }, "+task +timer -lease"},
		{"nothing", func() { w.step(lease.Expire{Task: task}) }, ""},
		{
			"delete", func() { w.step(lease.Delete{Tenant: "acme", Task: task}) },
			"+ledger +timer -checkpoint -failure -feedback -idempotency -output -spec -task -timer",
		},
	} {
		tt.do()
		if got := operations(&w.batch); got != tt.want {
			t.Errorf("Put of %s writes %q, want %q", tt.name, got, tt.want)
		}
		w.flush(t)
	}
}

// An empty result gets no record in Output if the digest of the outcome shows that the result is
// empty. The outcome of an adopted result has no digest, so that result gets a record.
func TestEmptyResultIsNotWritten(t *testing.T) {
	yes := []byte("out")
	for _, tt := range []struct {
		name   string
		result *lease.Result
		kind   lease.Kind
		want   string
	}{
		{"nothing", nil, lease.KindComplete, "+spec +timer"},
		{"an empty result", &lease.Result{}, lease.KindComplete, "+spec +timer"},
		{"an output", &lease.Result{Output: yes}, lease.KindComplete, "+output +spec +timer"},
		{"an artifact", &lease.Result{Artifacts: []lease.Artifact{{}}}, lease.KindComplete, "+output +spec +timer"},
		{"metrics", &lease.Result{Metrics: map[string]float64{"rows": 1}}, lease.KindComplete, "+output +spec +timer"},
		{"an empty result that was adopted", &lease.Result{}, lease.KindAdopt, "+output +spec +timer"},
	} {
		task := &lease.Task{ID: id(1), Spec: &lease.Spec{}, Rest: lease.Completed, FinishedAt: 1}
		task.Outcome = &lease.Committed{
			Kind:   tt.kind,
			Digest: (&lease.Report{Kind: lease.KindComplete, Result: tt.result}).Digest(),
		}
		if tt.kind == lease.KindAdopt {
			task.Outcome.Digest = lease.Digest{}
		}
		result := tt.result
		if result == nil {
			result = &lease.Result{} // as the rules do
		}
		var b store.Batch
		records.Put(&b, &lease.Change{New: task, Result: result, Row: true})
		if got := strings.ReplaceAll(operations(&b), "+task ", ""); got != tt.want {
			t.Errorf("%s: Put writes %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The removal of a task deletes only the records that the task may have, because each delete costs
// a search. The task here has no failure, checkpoint, lease or idempotency key. The version of a
// task does not say whether it has records in Task, Feedback and Output, so these are deleted.
func TestRemovalDeletesOnlyRecordsThatMayExist(t *testing.T) {
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	w.submit(lease.Spec{Queue: "q"})
	w.step(lease.Grant{Task: id(1)})
	w.say(id(1), lease.Report{Kind: lease.KindComplete, Result: &lease.Result{}})
	w.flush(t)
	w.step(lease.Delete{Tenant: "acme", Task: id(1)})
	if got, want := operations(&w.batch), "+ledger +timer -feedback -output -spec -task -timer"; got != want {
		t.Errorf("Put of the removal writes %q, want %q", got, want)
	}
}

// Put must not modify the change or its versions, because others may be reading them (see
// lease.Task). The comparison finds values that have changed; the race detector also finds writes
// of the same value.
func TestPutOnlyReads(t *testing.T) {
	// always the same
	change := func() lease.Change { return random[lease.Change](filler{rnd: rand.New(rand.NewPCG(1, 1))}) }
	c := change()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			var b store.Batch
			for range 20 {
				records.Put(&b, &c)
				records.Put(&b, &lease.Change{New: c.New, Row: true})
				records.Put(&b, &lease.Change{Old: c.Old, ForgetAt: c.ForgetAt})
			}
		})
	}
	readers.Wait()
	if diff := cmp.Diff(change(), c); diff != "" {
		t.Errorf("Put modified its argument, -before +after:\n%s", diff)
	}
}

// A10: ForgetLedger deletes all committed reports of a deleted task and the timer that was due for
// them, and nothing of other tasks.
func TestForgetLedger(t *testing.T) {
	t.Attr("rules", "A10")
	s := memstore.New()
	ledger := []lease.Committed{{Attempt: 1}, {Attempt: 2}, {Attempt: math.MaxUint32}}
	commit(t, s, func(b *store.Batch) {
		for seq := range uint64(4) {
			task := &lease.Task{ID: id(seq), Spec: &lease.Spec{}}
			records.Put(b, &lease.Change{New: task, Ledger: ledger, Row: true})
			records.Put(b, &lease.Change{Old: task, ForgetAt: 5, Row: true})
		}
	})
	view(t, s, func(r store.Reader) error {
		var b store.Batch
		if err := records.ForgetLedger(&b, r, id(2), 5); err != nil {
			return err
		}
		return s.Commit(t.Context(), &b)
	})
	view(t, s, func(r store.Reader) error {
		for seq := range uint64(4) {
			for _, done := range ledger {
				if got, err := records.Committed(r, id(seq), done.Attempt); (got == nil) != (seq == 2) || err != nil {
					t.Errorf("task %d, attempt %d: the committed report is %v, error %v; want that it exists: %v",
						seq, done.Attempt, got, err, seq != 2)
				}
			}
		}
		var timers []uint64
		err := records.Timers(r, store.TimerKey{Due: math.MinInt64},
			func(k store.TimerKey) bool { timers = append(timers, k.Task.Seq); return true })
		wantEqual(t, err, "timers", []uint64{0, 1, 3}, timers)
		return nil
	})
}
