package worker

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// State is the state of the worker's connection to its coordinator (W1).
type State int

// The states, in the order in which a worker without errors passes through them.
const (
	// StateNew: no stream.
	StateNew State = iota
	// StateHandshaking: a stream is being opened, and the coordinator has not accepted it yet.
	StateHandshaking
	// StateRegistered: the coordinator has accepted the stream, and the worker registers its
	// capabilities.
	StateRegistered
	// StateHeartbeating: the worker sends heartbeats and gets work.
	StateHeartbeating
	// StateDraining: the worker gets no new work; running handlers finish.
	StateDraining
	// StateBackoff: the stream broke, and the worker waits before it opens the next one.
	StateBackoff
	// StateClosed: Run has returned, or is about to.
	StateClosed
)

var stateNames = [...]string{"NEW", "HANDSHAKING", "REGISTERED", "HEARTBEATING", "DRAINING", "BACKOFF", "CLOSED"}

// String returns the name of the state in the protocol, for example "HEARTBEATING".
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return "UNKNOWN"
	}
	return stateNames[s]
}

// MarshalText returns the state's name, also for JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// event is what changes the state of a worker.
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
	// waited: the wait after a broken stream is over.
	waited
	// ended: Run is about to return.
	ended
)

// moves is the complete table of the worker's side of W1. An event that is not in it changes
// nothing.
var moves = [...]map[event]State{
	StateNew:         {opening: StateHandshaking, broken: StateBackoff, ended: StateClosed},
	StateHandshaking: {accepted: StateRegistered, broken: StateBackoff, ended: StateClosed},
	StateRegistered: {
		serving:    StateHeartbeating,
		drainAsked: StateDraining,
		broken:     StateBackoff,
		ended:      StateClosed,
	},
	StateHeartbeating: {drainAsked: StateDraining, broken: StateBackoff, ended: StateClosed},
	StateDraining:     {broken: StateBackoff, ended: StateClosed},
	StateBackoff:      {waited: StateNew, ended: StateClosed},
	StateClosed:       {},
}

// expects reports whether the state allows a frame of the coordinator. The worker answers a frame
// that is not allowed with E.CMD.UNKNOWN, and the frame changes nothing.
func (s State) expects(f *lessorv1.SessionResponse) bool {
	switch f.GetPayload().(type) {
	case *lessorv1.SessionResponse_Error, *lessorv1.SessionResponse_Reset_:
		return true
	case *lessorv1.SessionResponse_Accept:
		return s == StateHandshaking
	case nil:
		return !wire.HasUnknownPayload(f)
	}
	return s == StateRegistered || s == StateHeartbeating || s == StateDraining
}

// move changes the state of the worker as the event asks.
func (w *Worker) move(e event) {
	w.lock()
	defer w.unlock()
	w.moveLocked(e)
}

// moveLocked changes the state of the worker as the event asks. If a drain was requested before the
// session was accepted, the state changes to StateDraining right after StateRegistered.
func (w *Worker) moveLocked(e event) {
	to, moved := moves[w.mu.state][e]
	if !moved {
		return
	}
	w.mu.state = to
	if hook := w.cfg.Hooks.OnState; hook != nil {
		w.deferLocked(func() { hook(to) })
	}
	if to == StateRegistered && w.mu.drain.requested {
		w.moveLocked(drainAsked)
	}
}
