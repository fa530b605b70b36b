package session

import (
	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// sessionState is the state of a session (W1). The frames of the worker change it.
type sessionState int

const (
	opening      sessionState = iota // a stream without a session yet
	handshaking                      // accepted; waits for register
	registered                       // gets work
	heartbeating                     // as registered, and the worker has sent a heartbeat
	draining                         // gets no new work
	closed                           // the worker said goodbye
)

// frameKind is the kind of a worker's frame.
type frameKind int

const (
	frameUnknown frameKind = iota // a payload that this version does not know, or no content at all
	frameBare                     // no payload: the frame acknowledges, or asks for an acknowledgement
	frameHandshake
	frameRegister
	frameHeartbeat
	frameReports
	frameFeedback
	frameCapacity
	frameDrain
	frameError
	frameGoodbye
	framePkgEvent
)

// moves is the state table of W1: for each state and frame, the next state. A frame that a state
// does not list is answered with E.CMD.UNKNOWN and changes nothing.
var moves = [...]map[frameKind]sessionState{
	opening: {
		frameBare: opening, frameHandshake: handshaking, frameError: opening, frameGoodbye: closed,
	},
	handshaking: {
		frameBare: handshaking, frameRegister: registered, frameError: handshaking, frameGoodbye: closed,
	},
	registered: {
		frameBare:      registered,
		frameRegister:  registered,
		frameHeartbeat: heartbeating,
		frameReports:   registered,
		frameFeedback:  registered,
		frameCapacity:  registered,
		frameDrain:     draining,
		frameError:     registered,
		frameGoodbye:   closed,
		framePkgEvent:  registered,
	},
	heartbeating: {
		frameBare:      heartbeating,
		frameRegister:  heartbeating,
		frameHeartbeat: heartbeating,
		frameReports:   heartbeating,
		frameFeedback:  heartbeating,
		frameCapacity:  heartbeating,
		frameDrain:     draining,
		frameError:     heartbeating,
		frameGoodbye:   closed,
		framePkgEvent:  heartbeating,
	},
	draining: {
		frameBare:      draining,
		frameRegister:  draining,
		frameHeartbeat: draining,
		frameReports:   draining,
		frameFeedback:  draining,
		frameCapacity:  draining,
		frameDrain:     draining,
		frameError:     draining,
		frameGoodbye:   closed,
		framePkgEvent:  draining,
	},
	closed: {},
}

var stateNames = [...]string{
	opening: "NEW", handshaking: "HANDSHAKING", registered: "REGISTERED", heartbeating: "HEARTBEATING",
	draining: "DRAINING", closed: "CLOSED",
}

// remedies say, for each state, what to do about a frame that the state does not allow.
var remedies = [...]string{
	opening: "send handshake, then register", handshaking: "send register; a stream has one handshake",
	registered: ownStream, heartbeating: ownStream, draining: ownStream, closed: ownStream,
}

const ownStream = "open a separate stream for each session"

func kindOf(m *lessorv1.SessionRequest) frameKind {
	switch m.GetPayload().(type) {
	case nil:
		if m.GetAck() == nil || wire.HasUnknownPayload(m) {
			return frameUnknown
		}
		return frameBare
	case *lessorv1.SessionRequest_Handshake:
		return frameHandshake
	case *lessorv1.SessionRequest_Register:
		return frameRegister
	case *lessorv1.SessionRequest_Heartbeat:
		return frameHeartbeat
	case *lessorv1.SessionRequest_Reports:
		return frameReports
	case *lessorv1.SessionRequest_Feedback:
		return frameFeedback
	case *lessorv1.SessionRequest_Capacity:
		return frameCapacity
	case *lessorv1.SessionRequest_Drain:
		return frameDrain
	case *lessorv1.SessionRequest_Error:
		return frameError
	case *lessorv1.SessionRequest_Goodbye:
		return frameGoodbye
	case *lessorv1.SessionRequest_PkgEvent:
		return framePkgEvent
	}
	return frameUnknown
}

// mayWork are the roles that may hold a session.
const mayWork = auth.Worker | auth.Operator

// frameAccess has the roles that may send each frame of a session (X2). Today they are the same for
// all, but a new frame is refused to everybody until somebody has decided who may send it.
var frameAccess = map[frameKind]auth.Role{
	frameBare:      mayWork,
	frameHandshake: mayWork,
	frameRegister:  mayWork,
	frameHeartbeat: mayWork,
	frameReports:   mayWork,
	frameFeedback:  mayWork,
	frameCapacity:  mayWork,
	frameDrain:     mayWork,
	frameError:     mayWork,
	frameGoodbye:   mayWork,
	framePkgEvent:  mayWork,
}
