package worker

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// newerPayload is a frame with a payload that this version does not know.
func newerPayload() *lessorv1.SessionResponse {
	f := &lessorv1.SessionResponse{}
	f.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x")))
	return f
}

// W1: in which states the worker handles each frame of the coordinator. allowed lists these states;
// in all others the worker refuses the frame.
func TestEveryFrameInEveryState(t *testing.T) {
	t.Attr("rules", "W1")
	const (
		all     = "NEW HANDSHAKING REGISTERED HEARTBEATING DRAINING BACKOFF CLOSED"
		serving = "REGISTERED HEARTBEATING DRAINING"
	)
	for _, tt := range []struct {
		name    string
		frame   *lessorv1.SessionResponse
		allowed string
	}{
		{"nothing", &lessorv1.SessionResponse{}, all},
		{"a newer payload", newerPayload(), ""},
		{"accept", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Accept{}}, "HANDSHAKING"},
		{"dispatch", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Dispatch{}}, serving},
		{"verdicts", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Verdicts{}}, serving},
		{"heartbeat_ack", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_HeartbeatAck{}}, serving},
		{"cancel", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Cancel{}}, serving},
		{"drain", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{}}, serving},
		{"error", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Error{}}, all},
		{"reset", &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{}}, all},
	} {
		for state := StateNew; state <= StateClosed; state++ {
			if got, want := state.expects(tt.frame), slices.Contains(strings.Fields(tt.allowed), state.String()); got != want {
				t.Errorf("expects(%s) in state %v = %v, want %v", tt.name, state, got, want)
			}
		}
	}
}

// W1: which state follows each state and event. In a state that is not listed the event changes
// nothing. A drain that was asked for before there is a session begins when the session is
// accepted.
func TestEveryEventInEveryState(t *testing.T) {
	t.Attr("rules", "W1")
	for e, want := range map[event]string{
		opening:    "NEW>HANDSHAKING",
		accepted:   "HANDSHAKING>REGISTERED",
		serving:    "REGISTERED>HEARTBEATING",
		drainAsked: "REGISTERED>DRAINING HEARTBEATING>DRAINING",
		broken:     "NEW>BACKOFF HANDSHAKING>BACKOFF REGISTERED>BACKOFF HEARTBEATING>BACKOFF DRAINING>BACKOFF",
		waited:     "BACKOFF>NEW",
		ended:      "NEW>CLOSED HANDSHAKING>CLOSED REGISTERED>CLOSED HEARTBEATING>CLOSED DRAINING>CLOSED BACKOFF>CLOSED",
	} {
		for from := StateNew; from <= StateClosed; from++ {
			w := &Worker{}
			w.mu.state = from
			w.move(e)
			to := w.mu.state
			if moved := slices.Contains(strings.Fields(want), from.String()+">"+to.String()); moved == (from == to) {
				t.Errorf("event %d moves the worker from %v to %v, want only %q", e, from, to, want)
			}
			if from == to && strings.Contains(" "+want, " "+from.String()+">") {
				t.Errorf("event %d does not change the state %v, want %q", e, from, want)
			}
		}
	}
	w := &Worker{}
	w.mu.state, w.mu.drain.requested = StateHandshaking, true
	if w.move(accepted); w.mu.state != StateDraining {
		t.Errorf("the state of a worker that was drained before it was accepted is %v, want %v", w.mu.state, StateDraining)
	}
}

// A log in JSON shows a state by its name, as one in text does.
func TestStateInJSON(t *testing.T) {
	if got, err := json.Marshal(StateDraining); string(got) != `"DRAINING"` || err != nil {
		t.Errorf("StateDraining in JSON = %s, %v", got, err)
	}
}
