package coordinator

import (
	"log/slog"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// take handles one frame; false ends the session.
func (ss *session) take(f *frame) bool {
	ss.size = f.size
	if f.err != nil {
		ss.out.fail("", codeInvalid, "the frame can not be read: "+f.err.Error(), "send valid protobuf with UTF-8 strings")
		return true
	}
	m := f.msg
	if !ss.named(m) {
		return true
	}
	ss.logFrame(m)
	if err := ss.envelope(m); err != "" {
		return ss.deny(m.GetId(), err)
	}
	ss.mu.Lock()
	ss.seen = ss.c.engine.Now().Wall
	ss.mu.Unlock()
	if m.GetAck().GetFor() != "" {
		ss.acknowledged(m.GetAck().GetFor())
	}
	goOn := ss.payload(m)
	ss.unhush() // after what the frame says is judged, so that a late report is not overtaken by a new grant
	if m.GetAck().GetRequest() {
		ss.out.ack(m.GetId())
	}
	return goOn
}

// named checks what the answers refer to.
func (ss *session) named(m *lessorv1.SessionRequest) bool {
	f := fields{limits: ss.c.cfg.Limits}
	corr := f.required("id", m.GetId())
	if f.err != nil {
		corr = ""
	}
	f.id("corr", m.GetCorr())
	if f.err != nil {
		ss.out.fail(corr, codeInvalid, f.err.Error(), "give every frame a short id of its own")
	}
	return f.err == nil
}

// envelope checks what binds the stream: tenant and sender. It returns what is wrong.
func (ss *session) envelope(m *lessorv1.SessionRequest) string {
	first := ss.id == ""
	if t := m.GetTenant(); t != ss.who.Tenant && (first || t != "") {
		return "tenant: is not that of the credentials"
	}
	s := m.GetSender()
	switch {
	case s == nil && !first:
		return ""
	case s.GetRole() != "worker":
		return `sender.role: is not "worker"`
	case first:
		return ""
	case s.GetId() != ss.info.GetName():
		return "sender.id: is not the worker that opened the stream"
	}
	return ""
}

// deny ends the session: whoever speaks is not whom the stream is bound to.
func (ss *session) deny(corr, why string) bool {
	ss.out.fail(corr, codeDenied, why, "tenant and sender are bound by the first frame; open a stream of your own")
	ss.end(newStatus(codes.PermissionDenied, codeDenied, why, nil))
	return false
}

// payload dispatches by state (W1).
func (ss *session) payload(m *lessorv1.SessionRequest) bool {
	switch p := m.GetPayload().(type) {
	case nil:
		if m.GetAck() == nil || len(m.ProtoReflect().GetUnknown()) > 0 {
			ss.out.fail(m.GetId(), codeUnknown, "the frame has no payload that this version knows", "")
		}
	case *lessorv1.SessionRequest_Handshake:
		return ss.handshake(m, p.Handshake)
	case *lessorv1.SessionRequest_Register:
		ss.register(m.GetId(), p.Register)
	case *lessorv1.SessionRequest_Error:
		ss.log.Warn("worker reports an error", "corr", m.GetCorr(), "code", clip(p.Error.GetCode()), "message", clip(p.Error.GetMessage()))
	case *lessorv1.SessionRequest_Goodbye:
		return ss.goodbye(m)
	default:
		if ss.current() == handshaking {
			ss.out.fail(m.GetId(), codeUnknown, "the frame needs a registered session", "send handshake, then register")
			return true
		}
		ss.working(m)
	}
	return true
}

// working takes the frames of a registered session.
func (ss *session) working(m *lessorv1.SessionRequest) {
	switch p := m.GetPayload().(type) {
	case *lessorv1.SessionRequest_Heartbeat:
		ss.heartbeat(m.GetId(), p.Heartbeat)
	case *lessorv1.SessionRequest_Reports:
		ss.reports(m.GetId(), p.Reports)
	case *lessorv1.SessionRequest_Feedback:
		ss.feedback(m.GetId(), p.Feedback)
	case *lessorv1.SessionRequest_Capacity:
		ss.capacity(m.GetId(), p.Capacity)
	case *lessorv1.SessionRequest_Drain:
		ss.setState(draining)
		ss.resize()
	}
}

// handshake opens the session.
func (ss *session) handshake(m *lessorv1.SessionRequest, h *lessorv1.Handshake) bool {
	if ss.id != "" {
		ss.out.fail(m.GetId(), codeUnknown, "the session has had its handshake", "open a stream for every session")
		return true
	}
	if h.GetProtocol() != Protocol {
		return ss.deny(m.GetId(), "handshake.protocol: this coordinator speaks version 1 only")
	}
	w := h.GetWorker()
	f := fields{limits: ss.c.cfg.Limits}
	f.required("handshake.worker.name", w.GetName())
	f.id("handshake.worker.instance_id", w.GetInstanceId())
	f.id("handshake.worker.version", w.GetVersion())
	f.id("handshake.worker.hostname", w.GetHostname())
	if f.err != nil {
		ss.out.fail(m.GetId(), codeInvalid, f.err.Error(), "mend the field and send the handshake again")
		return true
	}
	if m.GetSender().GetId() != w.GetName() {
		return ss.deny(m.GetId(), "sender.id: is not handshake.worker.name")
	}
	ss.open(w)
	cfg := &ss.c.cfg.Sessions
	ss.out.accept(m.GetId(), &lessorv1.Accept{
		SessionId: ss.id, HeartbeatInterval: durationpb.New(cfg.HeartbeatInterval), IdleTimeout: durationpb.New(cfg.IdleTimeout),
		ServerTime: stamp(ss.c.engine.Now().Wall), CoordinatorVersion: ss.c.cfg.Version,
	})
	return true
}

func (ss *session) open(w *lessorv1.WorkerInfo) {
	instance := w.GetInstanceId()
	if instance == "" {
		instance = newInstance()
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.info = w
	ss.id = engine.NewSessionID(ss.who.Tenant, w.GetName(), instance)
	ss.log = ss.log.With("tenant", ss.who.Tenant, "sender", w.GetName(), "session", ss.id)
	if !ss.left {
		ss.drain = ss.c.open.add(ss)
	}
	ss.log.Info("session opened", "instance", w.GetInstanceId(), "version", w.GetVersion(), "hostname", w.GetHostname())
}

// goodbye gives every lease back and ends the session in order (W9).
func (ss *session) goodbye(m *lessorv1.SessionRequest) bool {
	ss.leave(true)
	ss.log.Info("goodbye", "reason", clip(m.GetGoodbye().GetReason()))
	return false
}

// clip keeps words of the worker's within a line of the log.
func clip(s string) string {
	const most = 512
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func (ss *session) logFrame(m *lessorv1.SessionRequest) {
	if !ss.log.Enabled(ss.stream.Context(), slog.LevelDebug) {
		return
	}
	ss.log.Debug("frame", "type", payloadName(m), "id", m.GetId(), "corr", m.GetCorr(), "seq", m.GetSeq())
}

func payloadName(m *lessorv1.SessionRequest) string {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return "ack"
	}
	return string(f.Name())
}
