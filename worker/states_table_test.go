package worker

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// newerPayload is a frame with a payload of a newer version.
func newerPayload() *lessorv1.SessionResponse {
	f := &lessorv1.SessionResponse{}
	f.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x")))
	return f
}

// W1: every frame of the coordinator in every state of the worker.
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
			if got, want := state.heeds(tt.frame), slices.Contains(strings.Fields(tt.allowed), state.String()); got != want {
				t.Errorf("%s in %v is allowed: %v, want %v", tt.name, state, got, want)
			}
		}
	}
}

// W1: every event in every state of the worker; where nothing is said, it stays. A drain that was asked before there is a session begins with it.
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
				t.Errorf("event %d leads from %v to %v", e, from, to)
			}
			if from == to && strings.Contains(" "+want, " "+from.String()+">") {
				t.Errorf("event %d leaves %v as it is", e, from)
			}
		}
	}
	w := &Worker{}
	w.mu.state, w.mu.drain.asked = StateHandshaking, true
	if w.move(accepted); w.mu.state != StateDraining {
		t.Errorf("a worker that was drained before is %v once it is accepted", w.mu.state)
	}
}
