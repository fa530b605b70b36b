package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// codeConcurrencyViolation: the worker refuses a concurrency key that it already runs.
const codeConcurrencyViolation = "E.CMD.CONCURRENCY_VIOLATION"

// flightKey is a concurrency key in its scope.
type flightKey struct{ workspace, key string }

// flights counts the goroutines that work under each concurrency key, also those that have lost their lease and not
// stopped yet: that is what the coordinator cannot know. It is guarded by Worker.mu, and empty unless Config.SingleFlight.
type flights map[flightKey]int

func keyOf(t *Task) flightKey { return flightKey{workspace: t.Workspace, key: t.ConcurrencyKey} }

// keyBusyLocked reports whether a task must not start because another one of its key runs here.
func (w *Worker) keyBusyLocked(t *Task) bool {
	return t.ConcurrencyKey != "" && w.mu.flights[keyOf(t)] > 0
}

// addFlightLocked notes that a task begins to work under its key.
func (w *Worker) addFlightLocked(t *Task) {
	if !w.cfg.SingleFlight || t.ConcurrencyKey == "" {
		return
	}
	if w.mu.flights == nil {
		w.mu.flights = make(flights)
	}
	w.mu.flights[keyOf(t)]++
}

// removeFlightLocked notes that a task has ended, whatever became of its lease.
func (w *Worker) removeFlightLocked(t *Task) {
	if !w.cfg.SingleFlight || t.ConcurrencyKey == "" {
		return
	}
	if key := keyOf(t); w.mu.flights[key] > 1 {
		w.mu.flights[key]--
	} else {
		delete(w.mu.flights, key)
	}
}

// concurrencyViolation refuses a task: the coordinator gives it to another worker, or to this one later, and counts nothing.
func concurrencyViolation(t *Task, leaseID string) *lessorv1.SessionRequest {
	return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Error{Error: &lessorv1.Error{
		Code:    codeConcurrencyViolation,
		Message: "a task of this concurrency key already runs in this worker",
		TaskId:  t.ID,
		LeaseId: leaseID,
	}}}
}
