package worker

import (
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Hooks is a set of callbacks for metrics, tests and alarms; each may be nil. Goroutines of the
// worker call them, several at once. They must return soon, because the stream waits for them. A
// panic in a hook ends the process.
//
// For one attempt, OnStart is first, then OnEnd, then OnVerdict. OnStop comes at any time, also a
// moment after OnEnd, or without either if the attempt was stopped before its handler was called.
// OnVerdict comes without OnStart and OnEnd if the task was given back before, and not at all if
// what the handler returned is discarded, or gets no verdict.
type Hooks struct {
	// OnState is called after each change of the worker's state, by the goroutine that changed it.
	// That is the one of Run, so the calls come in order and before Run returns. Only a drain may
	// begin in another goroutine: the call with StateDraining may overlap with others, or come
	// after that with the next state.
	OnState func(State)
	// OnStart is called before a handler runs, in the handler's goroutine. If the hook calls
	// runtime.Goexit, the attempt fails, as if the handler had called it.
	OnStart func(*Task)
	// OnEnd is called once for each OnStart, in the same goroutine, when the handler has returned,
	// whether or not the attempt still has its lease. It gets how long the handler took, and what
	// it returned: nil, its error, or a *PanicError.
	OnEnd func(*Task, time.Duration, error)
	// OnVerdict is called for each verdict on an outcome: COMMITTED, CANCELLED (the result was
	// discarded) or REJECTED (what was reported was wrong). Any of them may come after OnStop with
	// ErrLeaseLost, if the handler still returned a result.
	OnVerdict func(*Task, *lessorv1.ReportVerdict)
	// OnStop is called when a handler's context ends early, and again when a cancelled or draining
	// attempt then loses its lease as well. The error is a *StopError.
	OnStop func(*Task, error)
	// OnHeartbeat is called after each heartbeat of the worker was sent, in the goroutine of Run;
	// the hook must not change it. Healthy is false while the worker drains. While leases are to be
	// renewed there are more heartbeats than the coordinator asks for.
	OnHeartbeat func(*lessorv1.WorkerHeartbeat)
	// OnNoNewWork is called when the coordinator stops giving new work to the worker; why is the
	// reason, for example that the memory or the disk of the machine is nearly full (W9). When the
	// coordinator gives new work again, it is called with an empty why. It is not called while the
	// worker drains.
	OnNoNewWork func(why string)
	// OnError is called for errors that concern the operator of the worker: a session that broke or
	// could not be opened, such as ErrNoConnection (the worker connects again by itself), an error
	// that the coordinator reported, ErrUndelivered and ErrStuck. It is not called when the
	// coordinator closes a connection because of its age, once an hour. What a drain has given up
	// is also in the error of Run, which may return while OnError runs.
	OnError func(error)
}
