package session

import (
	"fmt"
	"log/slog"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// take handles one frame; false ends the session.
func (ss *Session) take(f *Frame) bool {
	ss.size = f.size
	m := f.msg
	ss.charge(kindOf(m))
	if problem := ss.checkIDs(f); problem != "" {
		return ss.refuse(m.GetId(), refusal.CodeInvalid, problem, "give every frame a short id of its own, and send valid protobuf with UTF-8 strings")
	}
	ss.logFrame(m)
	if why, remedy := ss.envelope(f); why != "" {
		return ss.deny(m.GetId(), why, remedy)
	}
	ss.mu.Lock()
	ss.seen = ss.srv.Engine.Now().Wall
	ss.mu.Unlock()
	if ss.resumeState == nil {
		return ss.takeOpening(f)
	}
	if !ss.in.enter(ss) {
		return false // another stream goes on with the session
	}
	defer ss.in.leave()
	return ss.takeInOrder(f)
}

// takeOpening handles a frame of a stream that has no session yet.
func (ss *Session) takeOpening(f *Frame) (goOn bool) {
	m := f.msg
	goOn = ss.handle(f, kindOf(m))
	switch {
	case ss.resumeState != nil:
		ss.in.opened(ss, m)
	case goOn && m.GetAck().GetRequest():
		goOn = ss.sendUnnumbered(&lessorv1.SessionResponse{Corr: m.GetId(), Ack: ackOf(m)})
	}
	return goOn
}

// takeInOrder keeps the order of the worker's frames (W6, W7).
func (ss *Session) takeInOrder(f *Frame) (goOn bool) {
	m, kind := f.msg, kindOf(f.msg)
	if id := m.GetAck().GetFor(); id != "" {
		ss.acks = ss.out.acknowledged(id)
	}
	order := ss.in.judge(m, kind)
	if order != inOrder || kind != frameReports {
		ss.passAcks()
	}
	goOn = true
	switch order {
	case repeated:
		ss.srv.Registry.repeats.Inc()
		ss.out.ack(m.GetId())
	case earlyNew:
		ss.srv.Registry.gapsIn.Inc()
		ss.out.missing(m.GetId(), ss.in.next)
	case inOrder:
		goOn = ss.handle(f, kind)
		ss.passAcks() // of a frame of reports that was refused
		if m.GetAck().GetRequest() {
			ss.out.ack(m.GetId())
		}
		if !ss.out.open() {
			return goOn // nobody knows whether it had its effect: the next stream will say it again
		}
		if ss.in.taken(m); m.GetSeq() != 0 {
			ss.out.took(m.GetId())
		}
	}
	ss.out.proceed()
	ss.endPause() // after what the frame says is judged, so that a late report is not overtaken by a new grant
	return goOn
}

// checkIDs checks the id and corr of a frame, to which its answers refer. Even if the frame could not be decoded they may be known.
func (ss *Session) checkIDs(f *Frame) (problem string) {
	check := convert.Fields{Limits: ss.srv.Limits}
	check.Required("id", f.msg.GetId())
	if check.Err != nil {
		f.msg.Id = ""
	}
	check.ID("corr", f.msg.GetCorr())
	switch {
	case check.Err == nil:
		return ""
	case f.err != nil:
		return unreadable(f.err)
	}
	return check.Err.Error()
}

func unreadable(err error) string { return "the frame cannot be read: " + err.Error() }

// envelope checks what binds the stream: tenant and sender. It returns what is wrong, and what to do about it.
func (ss *Session) envelope(f *Frame) (why, remedy string) {
	m, first := f.msg, ss.resumeState == nil
	if f.err != nil {
		return "", "" // it is refused whoever sent it
	}
	if t := m.GetTenant(); t != ss.who.Tenant && (first || t != "") {
		ss.asking = first
		return fmt.Sprintf("tenant: is %q; it must be %q, the tenant of the caller", t, ss.who.Tenant),
			"send that tenant, or connect with a credential of the tenant that you mean"
	}
	s := m.GetSender()
	switch {
	case s == nil && !first:
		return "", ""
	case s.GetRole() != "worker":
		return `sender.role: must be "worker"`, "set sender in the first frame; later frames repeat it or leave it out"
	case first:
		return "", ""
	case s.GetId() != ss.info.GetName():
		return "sender.id: differs from the worker that opened the stream", "open a separate stream for each worker"
	}
	return "", ""
}

// refuse answers a bad frame, by which nothing was changed, and goes on.
func (ss *Session) refuse(corr, code, message, remediation string) bool {
	if ss.resumeState != nil {
		ss.fail(corr, code, message, remediation)
		ss.out.proceed()
		return true
	}
	level := slog.LevelWarn
	if ss.asking {
		level = slog.LevelInfo
	}
	ss.log.Log(ss.stream.Context(), level, "frame refused", "corr", corr, "code", code, "problem", message)
	return ss.sendUnnumbered(errorFrame(corr, &lessorv1.Error{Code: code, Message: message, Remediation: remediation}))
}

// deny ends the session because the tenant or sender of a frame is not the one to which the stream is bound.
func (ss *Session) deny(corr, why, remedy string) bool {
	ss.refuse(corr, refusal.CodeDenied, why, remedy)
	ss.end(refusal.New(codes.PermissionDenied, refusal.CodeDenied, why, nil))
	return false
}

// handle takes a frame as the state allows it (W1).
func (ss *Session) handle(f *Frame, kind frameKind) bool {
	m := f.msg
	if f.err != nil {
		return ss.refuse(m.GetId(), refusal.CodeInvalid, unreadable(f.err), "send valid protobuf with UTF-8 strings")
	}
	if kind == frameUnknown {
		return ss.refuse(m.GetId(), refusal.CodeUnknown, "the frame has no payload that this coordinator knows", "")
	}
	state := ss.current()
	next, allowed := moves[state][kind]
	if !allowed {
		return ss.refuse(m.GetId(), refusal.CodeUnknown, fmt.Sprintf("%s is not allowed in the state %s", payloadName(m), stateNames[state]), remedies[state])
	}
	if asks := frameAccess[kind]; !ss.who.Role.Has(asks) {
		err := &refusal.RoleError{What: payloadName(m), Has: ss.who.Role, Asks: asks}
		return ss.refuse(m.GetId(), refusal.CodeForbidden, err.Error(), "use a credential with that role")
	}
	switch kind {
	case frameHandshake:
		return ss.handshake(m, m.GetHandshake())
	case frameGoodbye:
		return ss.goodbye(m)
	case frameError:
		ss.workerError(m)
	case frameBare: // the rest is in its envelope
	default:
		ss.work(m, kind, next)
	}
	return true
}

// work handles the frames after the handshake that leave the session open.
func (ss *Session) work(m *lessorv1.SessionRequest, kind frameKind, next sessionState) {
	switch kind {
	case frameRegister:
		ss.register(m.GetId(), m.GetRegister(), next)
	case frameHeartbeat:
		ss.heartbeat(m.GetId(), m.GetHeartbeat())
	case frameReports:
		ss.reports(m.GetId(), m.GetReports())
	case frameFeedback:
		ss.feedback(m.GetId(), m.GetFeedback())
	case frameCapacity:
		ss.capacity(m.GetId(), m.GetCapacity())
	case frameDrain:
		ss.setState(next)
		ss.resize()
	}
}

// workerError handles an error frame of the worker.
func (ss *Session) workerError(m *lessorv1.SessionRequest) {
	e := m.GetError()
	ss.log.Warn("worker reports an error", "corr", m.GetCorr(), "code", convert.Clip(e.GetCode(), maxWords), "message", convert.Clip(e.GetMessage(), maxWords))
	switch {
	case ss.member == nil:
	case e.GetCode() == refusal.CodeSeqGap:
		ss.srv.Registry.gapsOut.Inc()
		if !ss.out.resendFrom(e.GetExpectedSeq()) {
			ss.reset(refusal.CodeSeqGap, fmt.Sprintf("the frame with seq %d is no longer stored", e.GetExpectedSeq()), 0)
		}
	case e.GetCode() == refusal.CodeConcurrency:
		_ = ss.srv.Engine.Refuse(ss.who.Tenant, ss.id, e.GetTaskId(), e.GetLeaseId()) // a stopped engine hands out nothing
	}
}

// goodbye gives every lease back and ends the session in order (W9).
func (ss *Session) goodbye(m *lessorv1.SessionRequest) bool {
	ss.leave(true)
	ss.log.Info("goodbye", "reason", convert.Clip(m.GetGoodbye().GetReason(), maxWords))
	return false
}

// maxWords is what is kept of a worker's own words in a line of the log, in bytes.
const maxWords = 512

func (ss *Session) logFrame(m *lessorv1.SessionRequest) {
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
