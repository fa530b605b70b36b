package matrix

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// frames has a good frame of each kind that a worker can send in a session.
var frames = map[string]func(n names) *lessorv1.SessionRequest{
	"ack": func(names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Ack: &lessorv1.Ack{Request: true}}
	},
	"handshake": func(n names) *lessorv1.SessionRequest {
		hello := &lessorv1.SessionRequest_Handshake{Handshake: handshake(n["worker"], "another")}
		return &lessorv1.SessionRequest{Tenant: n["tenant"], Payload: hello}
	},
	"register": func(n names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: registration(n["queue"])}}
	},
	"heartbeat": func(n names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{
			Healthy: true, Leases: []*lessorv1.HeartbeatRequest{{
				TaskId: n["task"], LeaseId: n["lease"],
				Checkpoint: []byte(checkpointMark),
			}},
		}}}
	},
	"reports start": func(n names) *lessorv1.SessionRequest {
		return report(&lessorv1.Report{Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{TaskId: n["task"], LeaseId: n["lease"]}}})
	},
	"reports complete": func(n names) *lessorv1.SessionRequest {
		return report(&lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: complete(n)}})
	},
	"reports fail": func(n names) *lessorv1.SessionRequest {
		return report(&lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: fail(n)}})
	},
	"reports release": func(n names) *lessorv1.SessionRequest {
		return report(&lessorv1.Report{Report: &lessorv1.Report_Release{Release: release(n)}})
	},
	"feedback": func(n names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Feedback{Feedback: &lessorv1.Feedback{
			Items: []*lessorv1.FeedbackItem{{TaskId: n["task"], LeaseId: n["lease"], Message: outputMark, Progress: 0.5}},
		}}}
	},
	"capacity": func(names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Capacity{Capacity: &lessorv1.Capacity{MaxParallel: 2}}}
	},
	"drain": func(names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Drain{Drain: &lessorv1.Drain{}}}
	},
	"pkg_event": func(n names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_PkgEvent{PkgEvent: &lessorv1.PkgEvent{
			OperationId: n["request"], Name: n["package"], Version: "1", Status: lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED,
		}}}
	},
	"error": func(n names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Error{Error: &lessorv1.Error{
			Code: "E.CMD.CONCURRENCY_VIOLATION", TaskId: n["task"], LeaseId: n["lease"],
		}}}
	},
	"goodbye": func(names) *lessorv1.SessionRequest {
		return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Goodbye{Goodbye: &lessorv1.Goodbye{}}}
	},
}

func report(r *lessorv1.Report) *lessorv1.SessionRequest {
	return &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Reports{Reports: &lessorv1.Reports{Reports: []*lessorv1.Report{r}}}}
}

// frameRequest is a frame, and the worker that sends it.
type frameRequest struct {
	message
	worker string
}

// framePlaces returns a place for each kind of frame in the proto.
func framePlaces(t *testing.T) (places []*place) {
	t.Helper()
	kinds := payloadsOf((&lessorv1.SessionRequest{}).ProtoReflect().Descriptor(), "")
	for _, kind := range append(kinds, "ack") {
		row, declared := frames[kind]
		if !declared {
			t.Errorf("frame %s: declare in frames a good one", kind)
			continue
		}
		p := &place{
			name: kind, action: "Session", roles: working, declaringCredential: operator,
			changesMemory: kind == "handshake", send: (*host).frame,
		}
		if kind == "pkg_event" { // the only frame with an entry of its own in the audit
			p.within = "PkgEvent"
		}
		p.goodRequest = func(n names) request {
			m := row(n)
			m.Id, m.Sender = "sent-"+n["tenant"], &lessorv1.Sender{Role: "worker", Id: n["worker"]}
			return frameRequest{message{m}, n["worker"]}
		}
		p.fields = fieldsOf(t, p.goodRequest(names{}).(frameRequest).ProtoReflect())
		p.together = together(p.fields, func(f field) bool {
			return len(f.path) > 1 &&
				(f.path[0] != "sender" || kind == "handshake")
		})
		places = append(places, p)
	}
	if len(places) != len(frames) {
		t.Errorf("%d kinds of frames, %d are declared", len(places), len(frames))
	}
	return places
}

// payloadsOf lists the alternatives of a message, and of the messages in them.
func payloadsOf(m protoreflect.MessageDescriptor, prefix string) (kinds []string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		switch {
		case f.Message() == nil || f.IsMap():
		case f.ContainingOneof() != nil || prefix != "" && f.IsList() && f.Message().Oneofs().Len() > 0:
			name := prefix
			if f.ContainingOneof() != nil {
				name = join(prefix, string(f.Name()))
			}
			if inner := payloadsOf(f.Message(), name); len(inner) > 0 {
				kinds = append(kinds, inner...)
			} else if f.ContainingOneof() != nil {
				kinds = append(kinds, name)
			}
		}
	}
	return kinds
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + " " + name
}

// frame sends a frame in a new session, unless the frame itself opens one.
func (h *host) frame(c credential, r request) answer {
	h.t.Helper()
	sent := r.(frameRequest)
	m := sent.Message.(*lessorv1.SessionRequest)
	end := func() {}
	if c.used {
		c, end = h.createEndingCredential(c)
	}
	s := h.stream(c.headers)
	defer synctest.Wait()
	defer s.cut()
	if m.GetHandshake() == nil && (c.problem == "" || c.used) {
		h.streams++
		s.open(c.tenant, sent.worker, fmt.Sprintf("instance-%09d", h.streams))
	}
	end()
	from := len(s.received)
	s.send(m)
	return s.answer(from)
}

// answer returns what was heard, in a fixed order: the coordinator may send frames and
// acknowledgements in another one.
func (s *stream) answer(from int) (a answer) {
	var all []answer
	for _, m := range s.received[from:] {
		m = proto.CloneOf(m)
		m.Id, m.Seq, m.Ack = "", 0, nil
		if m.GetPayload() != nil {
			var one answer
			one.addMessage(m)
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b answer) int { return strings.Compare(a.text, b.text) })
	for _, one := range all {
		a.summary, a.text, a.randomValues = append(a.summary, one.summary...), a.text+one.text,
			append(a.randomValues, one.randomValues...)
	}
	if s.ended {
		a.end(s.err)
	}
	return a
}
