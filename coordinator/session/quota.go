package session

import (
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The quotas of sessions (X5). A stream is let in unless twice as many are open as the quota allows: when workers come back, the streams that they have
// lost may still count beside the new ones. The handshake then tells who it is. An instance that holds a lease, or takes the place of another stream,
// goes on in any case; any other is refused if more sessions are open than the quota allows.

// hasPlace reports whether the quota has a place for a session, and ends the stream if not. instances are the one that comes and the one that it
// replaces: if one of them has a place already, the quota does not matter.
func (ss *Session) hasPlace(corr string, instances ...string) bool {
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

// turnAway ends a stream before it has a session; its worker comes back later.
func (ss *Session) turnAway(corr string, err error) bool {
	ended := refusal.Status(err)
	_ = ss.sendUnnumbered(errorFrame(corr, &lessorv1.Error{
		Code: refusal.CodeOf(ended), Message: err.Error(), Remediation: "connect again later, or ask for a larger quota", RetryAfter: refusal.WaitOf(ended),
	}))
	ss.end(ended)
	return false
}

// charge counts a frame (X5). None that a lease or the state of the session depends on is refused; of feedback see mayPass.
func (ss *Session) charge(kind frameKind) {
	if kind != frameFeedback {
		ss.srv.Quotas.Charge(ss.who.quotas(), quota.Frames, 1)
	}
}

// mayPass refuses feedback for which there are no frames left.
func (ss *Session) mayPass(corr string) bool {
	err := ss.srv.Quotas.Spend(ss.who.quotas(), quota.Frames, 1)
	if err != nil {
		ended := refusal.Status(err)
		ss.fines.add(1)
		ss.out.refuse(corr, &lessorv1.Error{
			Code: refusal.CodeOf(ended), Message: err.Error(), Remediation: "send less feedback, or ask for a larger quota", RetryAfter: refusal.WaitOf(ended),
		})
	}
	return err == nil
}
