package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// T10: a task keeps its newest 100 events and counts those that it dropped.
func TestHistoryIsBounded(t *testing.T) {
	t.Attr("rules", "T10")
	const limit = 100
	n := newNarrator(t)
	n.run("submit t1 backoff=1s max_backoff=1s")
	total := 1 // the submit
	for range 60 {
		n.run("grant t1 w1")
		n.run("start t1")
		n.run("release t1")
		n.run("advance 2s")
		total += 4 // granted, started, released, and READY when the wait is over
	}
	n.run("expire t1")
	task := n.store.Task(n.tasks["t1"])
	total -= lease.FreeReleases // after these releases the task was READY at once, which is no event
	if got := int(task.Dropped) + len(task.Events()); got != total-1 {
		t.Errorf("%d events are dropped and %d are kept, want %d together: all but the submit, which is not stored",
			task.Dropped, len(task.Events()), total-1)
	}
	if len(task.Events()) != limit {
		t.Fatalf("%d events are kept, want %d", len(task.Events()), limit)
	}
	newest := task.Events()[limit-1]
	if newest.Type != lease.EventReady || newest.Seq != task.LastSeq() {
		t.Errorf("the newest event is %+v, want READY with the last sequence, %d", newest, task.LastSeq())
	}
}

// T10: the history is also bounded while a lease is live. The holders of more ended leases than a
// task keeps late results of report again and again: each time a result is kept that was dropped
// before, and that is an event.
func TestHistoryOfALiveLeaseIsBounded(t *testing.T) {
	t.Attr("rules", "T10 V15")
	n := newNarrator(t)
	n.run("submit t1")
	id := n.tasks["t1"]
	const ended = lease.MaxDiscarded + 1
	for attempt := range uint32(ended) {
		n.run("grant t1 w1")
		n.step(lease.Requeue{Task: id, Attempt: attempt + 1, Cause: lease.Revoked})
	}
	n.run("grant t1 w2")
	count := func() int {
		task := n.store.Task(id)
		return int(task.Dropped) + len(task.History) + len(task.Lease.Events)
	}
	for i := range 1000 {
		had := count()
		out := n.step(lease.Judge{Tenant: "acme", Reports: []*lease.Report{{
			Kind: lease.KindComplete, TaskID: id.String(), LeaseID: n.leases[fmt.Sprintf("t1/%d", i%ended+1)],
		}}})
		if a := out.Answers[0]; a.Verdict != lease.VerdictCancelled || len(out.Changes) != 1 {
			t.Fatalf("a Complete under an ended lease is %v with %d changes, want CANCELLED, and its result kept",
				a.Verdict, len(out.Changes))
		}
		if kept := len(n.store.Task(id).Events()); kept > 1+lease.MaxHistory {
			t.Fatalf("%d events are kept after %d late reports, want at most %d", kept, i+1, 1+lease.MaxHistory)
		}
		if count() != had+1 {
			t.Fatalf("%d events are kept or counted, want %d: one more than before", count(), had+1)
		}
	}
	n.run("complete t1")
	if got := n.store.Task(id); got.State() != lease.Completed || len(got.Events()) != lease.MaxHistory {
		t.Errorf("the task is %v and keeps %d events, want COMPLETED and %d", got.State(), len(got.Events()), lease.MaxHistory)
	}
}

// V15: an artifact for which the report names no worker is on the worker that held the lease of the
// report. If the result comes too late, other workers may have held the task since.
func TestArtifactGetsTheHolderOfItsLease(t *testing.T) {
	t.Attr("rules", "V15")
	n := newNarrator(t)
	n.run("submit t1 ttl=30s")
	for _, worker := range []string{"w1", "w2", "w3", "w4"} {
		n.run("grant t1 " + worker)
		n.run("advance 30s")
		n.run("expire t1")
	}
	n.run("grant t1 w5")
	id := n.tasks["t1"]
	complete := func(attempt uint32) lease.Change {
		return n.step(lease.Judge{Tenant: "acme", Reports: []*lease.Report{{
			Kind: lease.KindComplete, TaskID: id.String(), LeaseID: n.leases[fmt.Sprintf("t1/%d", attempt)],
			Result: &lease.Result{Artifacts: []lease.Artifact{{ResourceID: "model"}}},
		}}}).Changes[0]
	}
	for attempt, holder := range map[uint32]string{1: "w1", 2: "w2", 3: "w3", 4: "w4"} {
		if kept := complete(attempt).Kept; len(kept) != 1 || kept[0].Result.Artifacts[0].WorkerID != holder {
			t.Errorf("of attempt %d, %+v is kept, want a result with an artifact on %s", attempt, kept, holder)
		}
	}
	if r := complete(5).Result; r == nil || r.Artifacts[0].WorkerID != "w5" {
		t.Errorf("the result %+v is stored, want one with an artifact on w5", r)
	}
}

// V15: a Complete without a result is like one with an empty result: it is stored if it is
// COMMITTED, and kept if it comes too late.
func TestCompleteWithoutResult(t *testing.T) {
	t.Attr("rules", "V15")
	n := newNarrator(t)
	n.run("submit t1 ttl=30s")
	id := n.tasks["t1"]
	complete := func(attempt string) lease.Step {
		return n.step(lease.Judge{
			Tenant:  "acme",
			Reports: []*lease.Report{{Kind: lease.KindComplete, TaskID: id.String(), LeaseID: n.leases[attempt]}},
		})
	}
	n.run("grant t1 w1")
	n.run("advance 30s")
	complete("t1/1")
	if kept := n.store.Discarded(id, 1); kept == nil || !kept.Empty() {
		t.Errorf("a Complete without a result came too late, and %+v is kept; want an empty result", kept)
	}
	n.run("grant t1 w2")
	if out := complete("t1/2"); out.Changes[0].Result == nil || !out.Changes[0].Result.Empty() {
		t.Errorf("a Complete without a result was COMMITTED, and %+v is stored; want an empty result", out.Changes[0].Result)
	}
}

// A2: a task that has used up its attempt numbers is FAILED instead of granted: the attempt has 21
// bits of the fencing token, and with one more the token would reach into the epoch.
func TestGrantStopsAtTheLastAttempt(t *testing.T) {
	t.Attr("rules", "A2 S6")
	n := newNarrator(t)
	n.run("submit t1")
	id := n.tasks["t1"]
	almostUsedUp := *n.store.Task(id)
	almostUsedUp.Attempts = lease.MaxAttempt - 1
	n.store.tasks[id] = &almostUsedUp
	n.run("grant t1 w1")
	n.run("release t1 lease=t1/2097151")
	n.run("grant t1 w1")
	task := n.store.Task(id)
	if task.State() != lease.Failed || task.Reason != lease.DispatchUnavailable {
		t.Errorf("after %d attempts the task is %v, %v; want FAILED, DISPATCH_UNAVAILABLE",
			task.Attempts, task.State(), task.Reason)
	}
	events := task.Events()
	if last := events[len(events)-1]; last.Type != lease.EventEnded || last.At != n.now.Wall || task.FinishedAt != n.now.Wall {
		t.Errorf("the task finished at %d and the newest event is %+v, want that it ended now, at %d",
			task.FinishedAt, last, n.now.Wall)
	}
	if x := lease.Explain(n.now, n.store, task); x.Findings[0].Message != "no attempt number is left" {
		t.Errorf("the finding is %q, want that no attempt number is left", x.Findings[0].Message)
	}
}

// T8: Due returns when the next timer of a task is due on each of the two clocks. The coordinator's
// index of timers holds these times.
func TestDueReturnsTheNextTimers(t *testing.T) {
	t.Attr("rules", "T8")
	start := lease.Instant(time.Hour)
	at := func(d time.Duration) lease.Instant { return start.Add(d) }
	wall := func(d time.Duration) lease.Wall { return lease.WallOf(firstDay).Add(d) }
	for _, c := range []struct {
		name    string
		run     []string
		serving lease.Instant
		wall    lease.Wall
	}{
		{"READY", []string{"submit t1"}, 0, 0},
		{"READY, limited", []string{"submit t1 start_timeout=10s deadline=1m"}, at(10 * time.Second), wall(time.Minute)},
		{"SCHEDULED by the calendar", []string{"submit t1 run_at=5s deadline=1m"}, 0, wall(5 * time.Second)},
		{"SCHEDULED after a failure", []string{"submit t1 deadline=1m", "grant t1 w1", "fail t1"}, at(time.Second), wall(time.Minute)},
		{"LEASED on a stream", []string{"submit t1", "grant t1 w1 session=s1"}, at(5 * time.Second), 0},
		{"LEASED, acknowledged", []string{"submit t1", "grant t1 w1 session=s1", "ack t1"}, at(90 * time.Second), 0},
		{"CANCELLING", []string{"submit t1 deadline=1m", "grant t1 w1", "cancel t1"}, at(30 * time.Second), 0},
		{"COMPLETED", []string{"submit t1 retention=1h", "grant t1 w1", "complete t1"}, 0, wall(time.Hour)},
	} {
		n := newNarrator(t)
		for _, line := range c.run {
			n.run(line)
		}
		serving, wall := n.store.Task(n.tasks["t1"]).Due()
		if serving != c.serving || wall != c.wall {
			t.Errorf("%s: due at serving time %v and wall time %v, want %v and %v", c.name, serving, wall, c.serving, c.wall)
		}
	}
}
