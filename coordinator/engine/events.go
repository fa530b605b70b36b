package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Events are callbacks for observers of the engine; nil ones are skipped. They are called from the
// engine's goroutines and must not block. All but Committed and Changed are called when something
// is decided, which is a moment before it is durable.
type Events struct {
	// Submitted: a new task was made.
	Submitted func(t *lease.Task)
	// Ended: a task reached a final state, or went from one final state to another by an adoption.
	Ended func(t *lease.Task)
	// Committed: a commit that changed this number of tasks became durable; took is how long that
	// took.
	Committed func(tasks int, took time.Duration)
	// Changed: a task was changed from one version to another, and that is durable; before is nil
	// for a new task, after for one that was deleted. Unlike the others it is left nil if nobody
	// wants it.
	Changed func(before, after *lease.Task)
	// Judged: a report, Start, Heartbeat or acknowledgement of a worker got its verdict.
	Judged func(kind lease.Kind, a *lease.Answer)
	// Granted: a lease was granted; t has it. The task had been READY for the time waited, some of
	// it perhaps PARKED.
	Granted func(t *lease.Task, waited time.Duration)
	// LeaseEnded: a lease ended for cause, which is Reported for a committed report; t is the
	// version that had the lease.
	LeaseEnded func(t *lease.Task, cause lease.Reason)
	// Retried: a task waits for another attempt, after one that ended for cause.
	Retried func(t *lease.Task, cause lease.Reason)
	// StoodStill: the loop did nothing for the time by, while leases were live: the process was
	// stopped or got no processor time, or an operation took that long. Slow commits are not among
	// these.
	StoodStill func(by time.Duration)
	// Stalled: the coordinator stood still or had a slow commit for the time by, and gave that time
	// back to this number of leases (A8).
	Stalled func(by time.Duration, leases int)
	// WallClockSet: the wall clock went by more than by the monotonic clock, or less if by is
	// negative, at once: somebody has set it, or the machine slept.
	WallClockSet func(by time.Duration)
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
		e.Granted = func(*lease.Task, time.Duration) {}
	}
	if e.LeaseEnded == nil {
		e.LeaseEnded = func(*lease.Task, lease.Reason) {}
	}
	if e.Retried == nil {
		e.Retried = func(*lease.Task, lease.Reason) {}
	}
	if e.StoodStill == nil {
		e.StoodStill = func(time.Duration) {}
	}
	if e.Stalled == nil {
		e.Stalled = func(time.Duration, int) {}
	}
	if e.WallClockSet == nil {
		e.WallClockSet = func(time.Duration) {}
	}
}
