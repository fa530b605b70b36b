package worker_test

import (
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// isUnknownOf returns whether a frame is the refusal, E.CMD.UNKNOWN, of the frame with the id.
func isUnknownOf(id string) func(*lessorv1.SessionRequest) bool {
	return func(f *lessorv1.SessionRequest) bool {
		return f.GetCorr() == id && f.GetError().GetCode() == "E.CMD.UNKNOWN"
	}
}

// W1: the worker refuses a payload that it does not know with E.CMD.UNKNOWN. A field that it does
// not know in the envelope is not a payload, and is ignored.
func TestUnknownPayload(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		flagged := &lessorv1.SessionResponse{}
		flagged.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 1))
		s.send(flagged)
		s.quiet("error on a field of the envelope", isError)
		newer := &lessorv1.SessionResponse{}
		newer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), []byte("x")))
		s.send(newer)
		s.next("E.CMD.UNKNOWN", isUnknownOf(newer.GetId()))
		r.shutdown()
	})
}

// W1: a dispatch before the accept is refused with E.CMD.UNKNOWN and changes nothing; the session
// is opened nevertheless.
func TestFrameBeforeAccept(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		c.accepts = func(s *stream, _ *lessorv1.Accept) {
			f := dispatchOf("t1")
			f.Id = "early"
			s.resend(f)
		}
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		s.next("E.CMD.UNKNOWN", isUnknownOf("early"))
		s.quiet("effect of the early frame", isReports)
		r.shutdown()
		if len(r.errors) > 0 {
			t.Errorf("OnError got %v, want no error", r.errors)
		}
	})
}

// W1: a frame with another tenant, role or coordinator in its envelope has no effect and ends the
// session, with one error for OnError.
func TestWrongEnvelopeEndsTheSession(t *testing.T) {
	t.Attr("rules", "W1")
	for name, spoil := range map[string]func(*lessorv1.SessionResponse){
		"tenant": func(f *lessorv1.SessionResponse) { f.Tenant = "other" },
		"role":   func(f *lessorv1.SessionResponse) { f.Sender = &lessorv1.Sender{Role: "worker", Id: "fake"} },
		"id":     func(f *lessorv1.SessionResponse) { f.Sender = &lessorv1.Sender{Role: "coordinator", Id: "other"} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCoordinator(t)
				r := c.run(worker.Config{}, echo)
				s := c.accept()
				f := s.lose(dispatchOf("t1"))
				f.Sender = sender
				spoil(f)
				_ = s.grpc.Send(f)
				s.quiet("effect of a foreign frame", isReports)
				c.accept().quiet("effect of a foreign frame, on the next stream", isReports)
				r.shutdown()
				if len(r.errors) != 1 {
					t.Errorf("OnError got %v, want one error, for the session", r.errors)
				}
			})
		})
	}
}
