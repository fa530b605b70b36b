package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// flightKey is a concurrency key in its workspace.
type flightKey struct{ workspace, key string }

// flights counts the handlers that run a task of each concurrency key. It includes those that have
// lost their lease and have not returned yet, which the coordinator cannot know. It is guarded by
// Worker.mu, and empty unless Config.SingleFlight is set.
type flights map[flightKey]int

func keyOf(t *Task) flightKey { return flightKey{workspace: t.Workspace, key: t.ConcurrencyKey} }

// keyBusyLocked reports whether a task must not start because another task of its key runs in this
// worker.
func (w *Worker) keyBusyLocked(t *Task) bool {
	return t.ConcurrencyKey != "" && w.mu.flights[keyOf(t)] > 0
}

// addFlightLocked counts an attempt that begins to run.
func (w *Worker) addFlightLocked(a *attempt) {
	if w.cfg.SingleFlight && a.task.ConcurrencyKey != "" {
		a.flies = true
		w.mu.flights[keyOf(&a.task)]++
	}
}

// removeFlightLocked is called for an attempt that no longer runs, whether or not it still has its
// lease: before its outcome is sent, because the coordinator may answer with the next task of the
// key at once, and again at the end of its goroutine.
func (w *Worker) removeFlightLocked(a *attempt) {
	if a.flies {
		a.flies = false
		countDown(w.mu.flights, keyOf(&a.task))
	}
}

// refuseLocked refuses a task because a task of its concurrency key already runs here. The
// coordinator then gives the task to another worker, or to this one later, and counts no failure
// (W14).
func (w *Worker) refuseLocked(task, leaseID string) {
	w.mu.recent.refuse(leaseID)
	w.mu.outbox.refusals = append(w.mu.outbox.refusals, &lessorv1.Error{
		Code:    codeConcurrencyViolation,
		Message: "a task of this concurrency key already runs in this worker",
		TaskId:  task,
		LeaseId: leaseID,
	})
	w.wakeWriter()
}
