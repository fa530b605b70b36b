package session

import (
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// takeFrame handles one frame. It returns false if the session ends.
func (ss *Session) takeFrame(f *Frame) bool {
	ss.size = f.size
	m := f.msg
	ss.charge(kindOf(m))
	if ss.out != nil {
		if !ss.in.enter(ss) {
			return false // another stream has taken over the session; even an answer to a bad frame would go there
		}
		defer ss.in.leave()
	}
	if problem := ss.checkIDs(f); problem != "" {
		return ss.refuse(m.GetId(), refusal.CodeInvalid, problem,
			"give every frame a short id of its own, and send valid protobuf with UTF-8 strings")
	}
	ss.logFrame(m)
	if why, remedy := ss.envelope(f); why != "" {
		return ss.deny(m.GetId(), why, remedy)
	}
	ss.mu.Lock()
	ss.seen = ss.srv.Engine.Now().Wall
	ss.mu.Unlock()
	if ss.out == nil {
		return ss.takeOpening(f)
	}
	return ss.takeInOrder(f)
}

// takeOpening handles a frame of a stream that has no session yet.
func (ss *Session) takeOpening(f *Frame) (goOn bool) {
	m := f.msg
	goOn = ss.handle(f, kindOf(m))
	switch {
	case ss.out != nil:
		ss.in.opened(ss, m)
	case goOn && m.GetAck().GetRequest():
		goOn = ss.sendUnnumbered(&lessorv1.SessionResponse{Corr: m.GetId(), Ack: ackOf(m)})
	}
	return goOn
}

// takeInOrder handles a frame of an open session in the order of the worker's frames: it drops
// repeats and frames after a gap (W6, W7).
func (ss *Session) takeInOrder(f *Frame) (goOn bool) {
	m, kind := f.msg, kindOf(f.msg)
	if id := m.GetAck().GetFor(); id != "" {
		ss.acks = ss.out.acknowledged(id)
	}
	ss.out.unpause() // before anything that waits for room in the outbox: only the sending of what is in it makes room
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
		ss.passAcks() // still there if the frame is a reports frame that was refused
		if m.GetAck().GetRequest() {
			ss.out.ack(m.GetId())
		}
		if !ss.out.open() {
			// the stream ended, perhaps before the frame was decided: the worker sends the frame
			// again on its next stream
			return goOn
		}
		if ss.in.taken(m); m.GetSeq() != 0 {
			ss.out.ackLater(m.GetId())
		}
	}
	ss.endPause() // after the frame's reports went to the engine, so that no new grant overtakes a late report
	return goOn
}

// checkIDs checks the id and corr of a frame, because answers refer to them. They may be known even
// if the frame could not be decoded.
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

// envelope checks the tenant and the sender of a frame. The first frame binds its stream to them.
// It returns what is wrong, and what to do about it.
func (ss *Session) envelope(f *Frame) (why, remedy string) {
	m, first := f.msg, !ss.bound
	if f.err != nil {
		return "", "" // handle refuses a frame that could not be decoded
	}
	if t := m.GetTenant(); t != ss.who.Tenant && (first || t != "") {
		if first && t != "" {
			ss.asksTenant.Store(true)
			level := slog.LevelInfo
			if t == auth.DefaultTenant { // what a worker states that does not know its tenant
				level = slog.LevelDebug
			}
			ss.log.Log(ss.stream.Context(), level, "a worker was told the tenant of its credential, since it has stated another one",
				"stated", lease.Clip(t, maxWords))
		}
		return fmt.Sprintf("tenant: is %q; it must be %q, the tenant of the caller",
				lease.Clip(t, maxWords), ss.who.Tenant),
			"send that tenant, or connect with a credential of the tenant that you mean"
	}
	s := m.GetSender()
	switch {
	case s == nil && !first:
		return "", ""
	case s.GetRole() != "worker":
		return `sender.role: must be "worker"`, "set sender in the first frame; later frames repeat it or leave it out"
	case !first && s.GetId() != ss.sender:
		return "sender.id: differs from the worker that opened the stream", "open a separate stream for each worker"
	case !first:
		return "", ""
	}
	if err := lease.CheckID("sender.id", s.GetId(), ss.srv.Limits); err != nil {
		return err.Error(), "send the name of the worker"
	}
	ss.bound, ss.sender = true, s.GetId()
	return "", ""
}

// refuse answers a bad frame with an error frame, and adds a fine; the session goes on. The frame
// must not have changed anything. It returns false if the stream has ended.
func (ss *Session) refuse(corr, code, message, remediation string) bool {
	if ss.out != nil { // before the handshake nothing is remembered
		ss.in.refused()
	}
	return ss.answerError(corr, code, message, remediation)
}

// answerError is like refuse, for a frame that counts as taken.
func (ss *Session) answerError(corr, code, message, remediation string) bool {
	ss.fines.add(1)
	if !ss.asksTenant.Load() {
		ss.log.Warn("frame refused", "corr", corr, "code", code, "problem", message)
	}
	e := &lessorv1.Error{Code: code, Message: message, Remediation: remediation}
	if ss.out == nil {
		return ss.sendUnnumbered(errorFrame(corr, e))
	}
	ss.out.unpause() // as in takeInOrder
	ss.out.replyError(corr, e)
	return true
}

// deny refuses a frame and ends the session, because a field of the frame does not agree with the
// stream or the coordinator.
func (ss *Session) deny(corr, why, remedy string) bool {
	ss.refuse(corr, refusal.CodeDenied, why, remedy)
	ss.end(refusal.New(codes.PermissionDenied, refusal.CodeDenied, why, nil))
	return false
}

// handle handles a frame if the state of the session and the role of the caller allow it (W1, X2).
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
		return ss.refuse(m.GetId(), refusal.CodeUnknown,
			fmt.Sprintf("%s is not allowed in the state %s", payloadName(m), stateNames[state]), remedies[state])
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
	case frameBare: // it has only an envelope
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
		ss.heartbeat(m.GetId(), m.GetHeartbeat(), next)
	case frameReports:
		ss.reports(m.GetId(), m.GetReports())
	case frameFeedback:
		ss.feedback(m.GetId(), m.GetFeedback())
	case frameCapacity:
		ss.capacity(m.GetId(), m.GetCapacity())
	case frameDrain:
		ss.takeDrain(m.GetId(), m.GetDrain(), next)
	case framePkgEvent:
		ss.packageEvent(m.GetId(), m.GetPkgEvent())
	}
}

// workerError handles an error frame of the worker.
func (ss *Session) workerError(m *lessorv1.SessionRequest) {
	e := m.GetError()
	ss.log.Warn("worker reports an error",
		"corr", m.GetCorr(), "code", lease.Clip(e.GetCode(), maxWords), "message", lease.Clip(e.GetMessage(), maxWords))
	switch {
	case ss.member == nil:
	case e.GetCode() == refusal.CodeSeqGap:
		ss.resend(m.GetId(), e.GetExpectedSeq())
	case e.GetCode() == refusal.CodeConcurrency:
		ss.refusesKey(m.GetId(), e)
	}
}

// resend sends the frames from the expected seq on again, because the worker reports a gap (W7).
func (ss *Session) resend(corr string, expected uint64) {
	if next := ss.out.nextSeq(); expected < 1 || expected > next {
		why := fmt.Sprintf("error.expected_seq: is %d; the range is 1 to %d", expected, next)
		ss.refuse(corr, refusal.CodeInvalid, why, "send the seq of the first frame that is missing")
		return
	}
	ss.srv.Registry.gapsOut.Inc()
	if !ss.out.resendFrom(expected) {
		ss.reset(refusal.CodeSeqGap, fmt.Sprintf("the frame with seq %d is no longer kept", expected), 0)
	}
}

// refusesKey takes back a task that the worker refuses because of its concurrency key (W14).
func (ss *Session) refusesKey(corr string, e *lessorv1.Error) {
	f := convert.Fields{Limits: ss.srv.Limits}
	f.Required("error.task_id", e.GetTaskId())
	f.Required("error.lease_id", e.GetLeaseId())
	remedy := "name the task that the worker refuses, and its lease"
	if f.Err == nil {
		switch err := ss.srv.Engine.Refuse(ss.who.Tenant, ss.id, e.GetTaskId(), e.GetLeaseId()); {
		case errors.Is(err, engine.ErrNoKey):
			f.Fail("error.task_id", "%v, so no other one can be in its way", err)
			remedy = "report a release to give the task back"
		case err != nil:
			f.Fail("error.lease_id", "%v", err)
		}
	}
	if f.Err != nil {
		ss.refuse(corr, refusal.CodeInvalid, f.Err.Error(), remedy)
	}
}

// goodbye gives back all leases of the session and ends it (W9).
func (ss *Session) goodbye(m *lessorv1.SessionRequest) bool {
	ss.leave(true)
	ss.log.Info("goodbye", "reason", lease.Clip(m.GetGoodbye().GetReason(), maxWords))
	return false
}

// maxWords is how many bytes of a text of the worker go into a line of the log, or into an error,
// which some clients read only up to 8 KiB.
const maxWords = 512

func (ss *Session) logFrame(m *lessorv1.SessionRequest) {
	if !ss.log.Enabled(ss.stream.Context(), slog.LevelDebug) {
		return
	}
	fields := []any{"type", payloadName(m), "id", m.GetId(), "corr", m.GetCorr(), "seq", m.GetSeq()}
	if at := m.GetTs(); at.IsValid() {
		fields = append(fields, "worker_time", at.AsTime())
	}
	ss.log.Debug("frame", fields...)
}

func payloadName(m *lessorv1.SessionRequest) string {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return "ack"
	}
	return string(f.Name())
}
