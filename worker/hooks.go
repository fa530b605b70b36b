package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Hooks is a struct of callbacks for metrics, tests and alarms; each may be nil. They are called from the goroutines
// of the worker, several at once, and must return soon: the stream waits for them.
type Hooks struct {
	// OnState is called when the worker's state changes.
	OnState func(State)
	// OnStart is called before a handler runs.
	OnStart func(*Task)
	// OnVerdict is called for each verdict on an outcome: COMMITTED, CANCELLED (the result was discarded) or REJECTED
	// (what was reported was wrong).
	OnVerdict func(*Task, *lessorv1.ReportVerdict)
	// OnStop is called when a handler's context ends early, and again when a cancelled or draining attempt then loses
	// its lease as well. The error is a *StopError.
	OnStop func(*Task, error)
	// OnError is called for what concerns the operator: a session that broke (the worker connects again by itself), an
	// error that the coordinator reported, ErrUndelivered, ErrStuck.
	OnError func(error)
}

// State is where the worker stands with its coordinator (W1).
type State int

// The states, in the order of a life without errors.
const (
	// StateNew: no stream.
	StateNew State = iota
	// StateHandshaking: the stream opens, and the coordinator has not accepted yet.
	StateHandshaking
	// StateRegistered: accepted, and the capabilities are told.
	StateRegistered
	// StateHeartbeating: work comes in.
	StateHeartbeating
	// StateDraining: no new work; what runs finishes.
	StateDraining
	// StateBackoff: the stream broke; a wait before the next.
	StateBackoff
	// StateClosed: Run has returned, or is about to.
	StateClosed
)

var stateNames = [...]string{"NEW", "HANDSHAKING", "REGISTERED", "HEARTBEATING", "DRAINING", "BACKOFF", "CLOSED"}

// String returns the name of the protocol, for example "HEARTBEATING".
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "UNKNOWN"
	}
	return stateNames[s]
}
