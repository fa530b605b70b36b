package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// flightKey is a concurrency key in its workspace.
type flightKey struct{ workspace, key string }

// flights counts the goroutines that run a task of each concurrency key. It includes goroutines that have lost their lease and have not
// stopped yet, which the coordinator cannot know. It is guarded by Worker.mu, and empty unless Config.SingleFlight is set.
type flights map[flightKey]int

func keyOf(t *Task) flightKey { return flightKey{workspace: t.Workspace, key: t.ConcurrencyKey} }

// keyBusyLocked reports whether a task must not start because another task of its key runs in this worker.
func (w *Worker) keyBusyLocked(t *Task) bool {
	return t.ConcurrencyKey != "" && w.mu.flights[keyOf(t)] > 0
}

// addFlightLocked counts a task that begins to run.
func (w *Worker) addFlightLocked(t *Task) {
	if w.cfg.SingleFlight && t.ConcurrencyKey != "" {
		w.mu.flights[keyOf(t)]++
	}
}

// removeFlightLocked is called for a task that no longer runs, whether or not it still had its lease.
func (w *Worker) removeFlightLocked(t *Task) {
	if w.cfg.SingleFlight && t.ConcurrencyKey != "" {
		countDown(w.mu.flights, keyOf(t))
	}
}

// refuseLocked refuses a task because a task of its concurrency key already runs here. The coordinator then gives the task to another worker,
// or to this one later, and counts no failure (W14).
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
