package session_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// states has the states of a session in order, and the frame that leads to each of them.
var states = []struct {
	name  string
	enter proto.Message
}{
	{"NONE", nil}, // the stream is open, and no frame was sent
	{"HANDSHAKING", wiretest.HandshakeOf("w")},
	{"REGISTERED", wiretest.Registration(1)},
	{"HEARTBEATING", &lessorv1.WorkerHeartbeat{Healthy: true}},
	{"DRAINING", &lessorv1.Drain{}},
}

// W1: this test sends every kind of frame in every state. A cell of the table has the answer and
// the state after the frame. The answer is the code of an error, the name of a payload, "-" for no
// answer, or "end" for the end of the stream. A frame that gets E.CMD.UNKNOWN must change nothing.
func TestEveryFrameInEveryState(t *testing.T) {
	t.Attr("rules", "W1")
	const unknown = refusal.CodeUnknown
	for _, tt := range []struct {
		name    string
		payload proto.Message
		want    [5]string
	}{
		{"nothing", nil, [5]string{
			unknown + " NONE", unknown + " HANDSHAKING", unknown + " REGISTERED", unknown + " HEARTBEATING",
			unknown + " DRAINING",
		}},
		{"handshake", states[1].enter, [5]string{
			"accept HANDSHAKING", unknown + " HANDSHAKING", unknown + " REGISTERED", unknown + " HEARTBEATING", unknown + " DRAINING",
		}},
		{"register", wiretest.Registration(2), [5]string{unknown + " NONE", "- REGISTERED", "- REGISTERED", "- HEARTBEATING", "- DRAINING"}},
		{"heartbeat", states[3].enter, [5]string{
			unknown + " NONE", unknown + " HANDSHAKING", "heartbeat_ack HEARTBEATING", "heartbeat_ack HEARTBEATING",
			"heartbeat_ack DRAINING",
		}},
		{"reports", &lessorv1.Reports{}, [5]string{
			unknown + " NONE", unknown + " HANDSHAKING", "verdicts REGISTERED", "verdicts HEARTBEATING", "verdicts DRAINING",
		}},
		{"feedback", &lessorv1.Feedback{}, [5]string{
			unknown + " NONE", unknown + " HANDSHAKING", "- REGISTERED", "- HEARTBEATING", "- DRAINING",
		}},
		{"capacity", &lessorv1.Capacity{MaxParallel: 3}, [5]string{
			unknown + " NONE", unknown + " HANDSHAKING", "- REGISTERED", "- HEARTBEATING", "- DRAINING",
		}},
		{"drain", &lessorv1.Drain{}, [5]string{unknown + " NONE", unknown + " HANDSHAKING", "- DRAINING", "- DRAINING", "- DRAINING"}},
		{"error", &lessorv1.Error{Code: "E.X"}, [5]string{"- NONE", "- HANDSHAKING", "- REGISTERED", "- HEARTBEATING", "- DRAINING"}},
		{"goodbye", &lessorv1.Goodbye{}, [5]string{"end NONE", "end NONE", "end NONE", "end NONE", "end NONE"}},
	} {
		for state := range states {
			t.Run(tt.name+" in "+states[state].name, func(t *testing.T) {
				wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
					worker := sessionInState(t, r, state)
					before := r.ListedWorker(t, "w")
					corr := worker.Send(tt.payload)
					got := answerTo(worker, corr)
					after := r.ListedWorker(t, "w")
					wiretest.WantEqual(t, "the answer", got+" "+stateOf(after), tt.want[state])
					if got == unknown && !sameWorker(before, after) {
						t.Errorf("the refused frame changed %v to %v", before, after)
					}
				})
			})
		}
	}
}

// sessionInState opens a session of the worker w and brings it into a state.
func sessionInState(t *testing.T, r *wiretest.Rig, state int) *wiretest.Worker {
	t.Helper()
	worker := r.OpenStream(t, "w")
	for _, s := range states[1 : state+1] {
		corr := worker.Send(s.enter)
		answerTo(worker, corr)
	}
	wiretest.WantEqual(t, "the state", stateOf(r.ListedWorker(t, "w")), states[state].name)
	return worker
}

// answerTo returns the answer to the frame corr as TestEveryFrameInEveryState writes it.
func answerTo(worker *wiretest.Worker, corr string) string {
	worker.T.Helper()
	synctest.Wait()
	select {
	case m, ok := <-worker.Received:
		if !ok {
			return "end"
		}
		wiretest.WantEqual(worker.T, "corr", m.GetCorr(), corr)
		if e := m.GetError(); e != nil {
			return e.GetCode()
		}
		return wiretest.PayloadName(m)
	default:
		return "-"
	}
}

// stateOf returns the state of a listed worker; NONE if it is not listed.
func stateOf(w *lessorv1.Worker) string {
	if w == nil {
		return "NONE"
	}
	return strings.TrimPrefix(w.GetState().String(), "WORKER_STATE_")
}

// sameWorker compares two listings of a worker, without last_seen_at.
func sameWorker(a, b *lessorv1.Worker) bool {
	if a == nil || b == nil {
		return a == b
	}
	a.LastSeenAt, b.LastSeenAt = nil, nil
	return proto.Equal(a, b)
}

// A frame may have no payload if it acknowledges a frame or asks for an acknowledgement. A frame
// whose payload this version does not know is refused; the coordinator recognizes it by its unknown
// field. An unknown field of the envelope is ignored: it has a lower number.
func TestFramesWithoutAPayload(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		ping := worker.NewFrame(nil)
		ping.Ack = &lessorv1.Ack{Request: true}
		worker.SendFrame(ping)
		m := worker.NextFrame()
		if m.GetAck().GetFor() != ping.GetId() || m.GetPayload() != nil || m.GetCorr() != ping.GetId() {
			t.Errorf("a frame that asks for an ack got %v, want only the ack", m)
		}
		worker.Ack(&lessorv1.SessionResponse{Id: "never sent"})
		worker.WantNoFrame()
		flagged := worker.NewFrame(nil)
		flagged.Ack = &lessorv1.Ack{Request: true}
		flagged.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 1))
		wantAck(worker, worker.SendFrame(flagged))
		newer := worker.NewFrame(nil)
		newer.Ack = &lessorv1.Ack{Request: true}
		newer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("new")))
		worker.WantError(worker.SendFrame(newer), refusal.CodeUnknown, "no payload that this coordinator knows")
		if m := worker.NextFrame(); m.GetAck().GetFor() != newer.GetId() {
			t.Errorf("the frame with an unknown payload got %v after its error, want the ack", m)
		}
	})
}

// A frame that asks for an acknowledgement gets exactly one, in its answer or in a frame of its
// own. This also holds for a refused frame and for the last frame of a session.
func TestRequestedAckComesOnce(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		for _, payload := range []proto.Message{
			&lessorv1.Capacity{MaxParallel: 2}, &lessorv1.Capacity{MaxParallel: convert.MaxParallel + 1},
			&lessorv1.WorkerHeartbeat{Healthy: true},
			&lessorv1.Reports{}, &lessorv1.Drain{}, states[1].enter, &lessorv1.Goodbye{},
		} {
			m := worker.NewFrame(payload)
			m.Ack = &lessorv1.Ack{Request: true}
			worker.SendFrame(m)
			synctest.Wait()
			acks := 0
			for range len(worker.Received) {
				if a := <-worker.Received; a.GetAck().GetFor() == m.GetId() {
					acks++
				}
			}
			if acks != 1 {
				t.Errorf("%s got %d acks, want 1", wiretest.PayloadName(m), acks)
			}
		}
		if err := worker.WaitForEnd(); err != nil {
			t.Errorf("the stream ended with %v, want OK", err)
		}
	})
}

// W3: the coordinator numbers its frames from seq 1 on. Each frame has an id of its own, the
// tenant, the sender and a time.
func TestEnvelopeOfTheCoordinator(t *testing.T) {
	t.Attr("rules", "W3")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenStream(t, "w")
		worker.Send(states[1].enter)
		worker.Send(wiretest.Registration(2))
		worker.Send(&lessorv1.Reports{})
		worker.Send(nil)
		r.SubmitAll(t, 2)
		synctest.Wait()
		worker.Send(&lessorv1.Goodbye{})
		ids := map[string]bool{}
		seq := uint64(0)
		for m := range worker.Received {
			seq++
			if m.GetSeq() != seq || ids[m.GetId()] || m.GetId() == "" {
				t.Errorf("frame %d has id %q and seq %d, want a new id and seq %d", seq, m.GetId(), m.GetSeq(), seq)
			}
			ids[m.GetId()] = true
			if m.GetTenant() != gate.DefaultTenant || m.GetSender().GetRole() != "coordinator" || m.GetSender().GetId() == "" || m.GetTs() == nil {
				t.Errorf("the frame %v lacks tenant, sender or time", m)
			}
		}
		if seq != 4 {
			t.Errorf("received %d frames, want 4: accept, verdicts, error and dispatch", seq)
		}
	})
}
