package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

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

// event is what moves a worker from one state to another.
type event int

const (
	// opening a stream.
	opening event = iota
	// accepted by the coordinator.
	accepted
	// serving: register has been sent.
	serving
	// drainAsked by either side.
	drainAsked
	// broken: the stream is lost, or was refused or reset.
	broken
	// waited for long enough since the stream broke.
	waited
	// ended: Run is about to return.
	ended
)

// moves is the worker's side of W1, whole. What is not in it changes nothing.
var moves = [...]map[event]State{
	StateNew:          {opening: StateHandshaking, broken: StateBackoff, ended: StateClosed},
	StateHandshaking:  {accepted: StateRegistered, broken: StateBackoff, ended: StateClosed},
	StateRegistered:   {serving: StateHeartbeating, drainAsked: StateDraining, broken: StateBackoff, ended: StateClosed},
	StateHeartbeating: {drainAsked: StateDraining, broken: StateBackoff, ended: StateClosed},
	StateDraining:     {broken: StateBackoff, ended: StateClosed},
	StateBackoff:      {waited: StateNew, ended: StateClosed},
	StateClosed:       {},
}

// expects reports whether the state allows a frame of the coordinator. One that it does not allow is answered with
// E.CMD.UNKNOWN and changes nothing.
func (s State) expects(f *lessorv1.SessionResponse) bool {
	switch f.GetPayload().(type) {
	case *lessorv1.SessionResponse_Error, *lessorv1.SessionResponse_Reset_:
		return true
	case *lessorv1.SessionResponse_Accept:
		return s == StateHandshaking
	case nil:
		return !hasUnknownPayload(f)
	}
	return s == StateRegistered || s == StateHeartbeating || s == StateDraining
}

// move takes the worker to its next state.
func (w *Worker) move(e event) {
	w.lock()
	defer w.unlock()
	w.moveLocked(e)
}

// moveLocked takes the worker to its next state. A drain that was asked before there was a session is made up for.
func (w *Worker) moveLocked(e event) {
	to, moved := moves[w.mu.state][e]
	if !moved {
		return
	}
	w.mu.state = to
	if hook := w.cfg.Hooks.OnState; hook != nil {
		w.deferLocked(func() { hook(to) })
	}
	if to == StateRegistered && w.mu.drain.asked {
		w.moveLocked(drainAsked)
	}
}
