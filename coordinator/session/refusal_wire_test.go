package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// refuseTask sends the error with which a worker refuses a task because of its concurrency key, and
// returns the id of its frame.
func refuseTask(worker *wiretest.Worker, a *lessorv1.Assignment) string {
	worker.T.Helper()
	return worker.Send(&lessorv1.Error{Code: refusal.CodeConcurrency, TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
}

// W14, T5: a worker may refuse a task because it already runs a task with the same concurrency key.
// The refused task goes to another worker at once, and the refusal counts neither as a loss nor as
// a failure. A refusal under a lease that the session does not hold changes nothing, and the answer
// says so.
func TestRefusedTaskGoesToAnotherWorker(t *testing.T) {
	t.Attr("rules", "W14 T5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		keyed := func(s *lessorv1.TaskSpec) { s.ConcurrencyKey, s.ConcurrencyLimit = "k", 2 }
		worker, other := r.OpenSession(t, "w", 2), r.OpenSession(t, "other", 1)
		other.Send(&lessorv1.Capacity{MaxParallel: 0})
		other.WantNoFrame()
		r.Submit(t, keyed)
		runs := worker.ReceiveAssignments(1)[0]
		other.Send(&lessorv1.Capacity{MaxParallel: 1})
		worker.Send(&lessorv1.Capacity{MaxParallel: 1})
		synctest.Wait()
		r.Submit(t, keyed)
		second := other.ReceiveAssignments(1)[0]
		other.Send(&lessorv1.Capacity{MaxParallel: 0})
		other.WantNoFrame()
		worker.Send(&lessorv1.Capacity{MaxParallel: 2})
		for _, wrong := range []*lessorv1.Assignment{
			runs, {Task: runs.GetTask(), LeaseId: second.GetLeaseId()}, {Task: second.GetTask(), LeaseId: "forged"},
		} {
			other.WantError(refuseTask(other, wrong), refusal.CodeInvalid,
				"error.lease_id: the session holds no such lease of the task")
		}
		other.WantNoFrame()
		refuseTask(other, second)
		wantLeaseEnded(other, second, lessorv1.Reason_REASON_REVOKED)
		refuseTask(other, second) // of which it is rid
		other.WantNoFrame()
		again := worker.ReceiveAssignments(1)[0]
		if again.GetAttempt() != 2 || again.GetTask().GetFailures() != 0 || again.GetTask().GetLosses() != 0 {
			t.Errorf("the other worker got %v, want attempt 2 without losses and failures", again)
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(runs, ""), wiretest.Completed(again, "")))
	})
}

// W14: a refusal that does not name the task or its lease changes nothing, and the answer says so.
// Otherwise the task would stay with the worker until its lease expires, and nobody would know why.
func TestRefusalWithoutALeaseIsAnswered(t *testing.T) {
	t.Attr("rules", "W14")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.ConcurrencyKey = "k" })
		a := worker.ReceiveAssignments(1)[0]
		id := worker.Send(&lessorv1.Error{Code: refusal.CodeConcurrency, TaskId: a.GetTask().GetTaskId()})
		worker.WantError(id, refusal.CodeInvalid, "error.lease_id: must not be empty")
		id = worker.Send(&lessorv1.Error{Code: refusal.CodeConcurrency, LeaseId: a.GetLeaseId()})
		worker.WantError(id, refusal.CodeInvalid, "error.task_id: must not be empty")
		refuseTask(worker, a)
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_REVOKED)
	})
}

// W14: a worker cannot refuse a task that has no concurrency key, because no other task can be in
// its way. The answer says so, and the worker keeps its lease.
func TestRefusalOfATaskWithoutAKey(t *testing.T) {
	t.Attr("rules", "W14")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		e := worker.WantError(refuseTask(worker, a), refusal.CodeInvalid, "error.task_id: the task has no concurrency key")
		wiretest.WantContains(t, "the remedy", e.GetRemediation(), "release")
		worker.WantNoFrame()
		for _, h := range r.Get(t, id).GetHistory() {
			if h.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED {
				t.Errorf("the history has %v", h)
			}
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "")))
	})
}

// W14: if a session refuses a task although it runs no other task with the same key, it gets no
// tasks for 5 s. Otherwise it would get the same task again at once.
func TestRefusalWithoutAReasonPausesTheSession(t *testing.T) {
	t.Attr("rules", "W14")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.ConcurrencyKey = "k" })
		a := worker.ReceiveAssignments(1)[0]
		refuseTask(worker, a)
		wantLeaseEnded(worker, a, lessorv1.Reason_REASON_REVOKED)
		time.Sleep(5*time.Second - time.Millisecond)
		worker.WantNoFrame()
		time.Sleep(time.Millisecond)
		if again := worker.ReceiveAssignments(1)[0]; again.GetAttempt() != 2 {
			t.Errorf("the task was dispatched again as %v, want attempt 2", again)
		}
	})
}

// W14: after a session has refused a task because of its concurrency key, it gets at most one task
// of each key at a time, even if it changes its capacity or registers again.
func TestRefusalIsRemembered(t *testing.T) {
	t.Attr("rules", "W14")
	for name, say := range map[string]proto.Message{
		"capacity":            &lessorv1.Capacity{MaxParallel: 4},
		"capacity with types": &lessorv1.Capacity{MaxParallel: 4, PerTypeLimits: map[string]uint32{"other": 1}},
		"register":            wiretest.Registration(4),
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 3)
				keyed := func(s *lessorv1.TaskSpec) { s.ConcurrencyKey, s.ConcurrencyLimit = "k", 9 }
				r.Submit(t, keyed)
				runs := worker.ReceiveAssignments(1)[0]
				r.Submit(t, keyed)
				second := worker.ReceiveAssignments(1)[0]
				refuseTask(worker, second)
				wantLeaseEnded(worker, second, lessorv1.Reason_REASON_REVOKED)
				worker.Send(say)
				worker.WantNoFrame()
				wiretest.WantCommitted(t, worker.Report(wiretest.Completed(runs, "")))
				if again := worker.ReceiveAssignments(1)[0]; again.GetAttempt() != 2 {
					t.Errorf("the task was dispatched again as %v, want attempt 2", again)
				}
			})
		})
	}
}
