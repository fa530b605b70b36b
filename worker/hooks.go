package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Hooks is a struct of callbacks for metrics, tests and alarms; each may be nil. They are called from the goroutines
// of the worker, several at once, and must return soon: the stream waits for them. A panic in one ends the process.
type Hooks struct {
	// OnState is called when the worker's state changes.
	OnState func(State)
	// OnStart is called before a handler runs, in its goroutine. One that calls runtime.Goexit fails the attempt as the handler would.
	OnStart func(*Task)
	// OnVerdict is called for each verdict on an outcome: COMMITTED, CANCELLED (the result was discarded) or REJECTED
	// (what was reported was wrong).
	OnVerdict func(*Task, *lessorv1.ReportVerdict)
	// OnStop is called when a handler's context ends early, and again when a cancelled or draining attempt then loses
	// its lease as well. The error is a *StopError.
	OnStop func(*Task, error)
	// OnNoNewWork is called when the coordinator begins to give no new work, and says why: memory or disk of the machine are nearly full (W9). When
	// it gives new work again, why is empty.
	OnNoNewWork func(why string)
	// OnError is called for what concerns the operator: a session that broke or did not come about, such as ErrNoConnection
	// (the worker connects again by itself; that the coordinator closes a connection of an hour is not told), an error that the coordinator reported, ErrUndelivered, ErrStuck.
	OnError func(error)
}
