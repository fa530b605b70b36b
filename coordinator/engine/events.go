package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Events observe the engine. They are called from its goroutines and must not block; nil ones are skipped. All but Committed are
// called when something was decided, a moment before it is durable.
type Events struct {
	// Submitted: a task was taken in.
	Submitted func(t *lease.Task)
	// Ended: a task reached a final state, or another one by an adoption.
	Ended func(t *lease.Task)
	// Committed: a batch that changed so many tasks became durable in took.
	Committed func(tasks int, took time.Duration)
	// Judged: something that a worker said got its verdict.
	Judged func(kind lease.Kind, a *lease.Answer)
	// Granted: a lease was granted.
	Granted func(t *lease.Task)
	// LeaseEnded: a lease ended for cause; Reported is a committed report.
	LeaseEnded func(t *lease.Task, cause lease.Reason)
	// Retried: a task waits for another attempt after one that ended for cause.
	Retried func(t *lease.Task, cause lease.Reason)
	// Stalled: the coordinator itself stood still for so long, and gave it back to so many leases (A8).
	Stalled func(by time.Duration, leases int)
}

// fill makes every callback safe to call.
func (e *Events) fill() {
	if e.Submitted == nil {
		e.Submitted = func(*lease.Task) {}
	}
	if e.Ended == nil {
		e.Ended = func(*lease.Task) {}
	}
	if e.Committed == nil {
		e.Committed = func(int, time.Duration) {}
	}
	if e.Judged == nil {
		e.Judged = func(lease.Kind, *lease.Answer) {}
	}
	if e.Granted == nil {
		e.Granted = func(*lease.Task) {}
	}
	if e.LeaseEnded == nil {
		e.LeaseEnded = func(*lease.Task, lease.Reason) {}
	}
	if e.Retried == nil {
		e.Retried = func(*lease.Task, lease.Reason) {}
	}
	if e.Stalled == nil {
		e.Stalled = func(time.Duration, int) {}
	}
}
