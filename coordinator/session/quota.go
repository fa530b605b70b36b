package session

import (
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The quotas of sessions (X5). Serve accepts a stream unless twice as many streams are open as the
// quota allows: when workers come back, their lost streams may still count beside the new ones. The
// handshake then says which instance it is. An instance that holds a lease, or whose session has a
// stream already, is accepted in any case. Any other is refused if more sessions are open than the
// quota allows.

// checkPlace reports whether the quota allows a session, and ends the stream if not. instances are
// the instance that connects and the one that it replaces: if the engine knows one of them, the
// session is allowed in any case.
func (ss *Session) checkPlace(corr string, instances ...string) bool {
	who := ss.who.quotas()
	if !ss.srv.Quotas.Exceeds(who, quota.Sessions) {
		return true
	}
	known, err := ss.srv.Engine.KnowsInstance(ss.stream.Context(), who.Tenant, instances...)
	switch {
	case known:
		return true
	case err == nil:
		err = ss.srv.Quotas.Refuse(who, quota.Sessions)
	}
	return ss.turnAway(corr, err)
}

// turnAway ends a stream before it has a session, and asks the worker to connect again later.
func (ss *Session) turnAway(corr string, err error) bool {
	_ = ss.sendUnnumbered(errorFrame(corr, quotaError(err, "connect again later, or ask for a larger quota")))
	ss.end(refusal.Status(err))
	return false
}

// charge counts a frame against the quota (X5), but refuses none, because leases and the state of
// the session depend on frames. Feedback is different: see spendFeedback.
func (ss *Session) charge(kind frameKind) {
	if kind != frameFeedback {
		ss.srv.Quotas.Charge(ss.who.quotas(), quota.Frames, 1)
	}
}

// spendFeedback counts a feedback frame against the quota. It refuses the frame, and returns false,
// if the quota is used up.
func (ss *Session) spendFeedback(corr string) bool {
	err := ss.srv.Quotas.Spend(ss.who.quotas(), quota.Frames, 1)
	if err != nil {
		ss.fines.add(1)
		ss.in.refused() // the worker may send it again after the wait
		ss.out.replyError(corr, quotaError(err, "send less feedback, or ask for a larger quota"))
	}
	return err == nil
}

// quotaError is the error for a worker whose frame a quota refuses with err.
func quotaError(err error, remedy string) *lessorv1.Error {
	st := refusal.Status(err)
	return &lessorv1.Error{
		Code:        refusal.CodeOf(st),
		Message:     err.Error(),
		Remediation: remedy,
		RetryAfter:  refusal.WaitOf(st),
	}
}
