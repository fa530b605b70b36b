package coordinator

import (
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The quotas of sessions (X5). A stream comes in unless there are twice as many as there may be: so many can be the streams of workers that come back
// and those that they have lost. The handshake tells who it is. Whoever holds a lease, or takes the place of another stream, goes on; another
// one is refused where more are open than may be.

// hasPlace refuses a session for which there is no place, unless one of its instances has one: that which comes, or that which it replaces.
func (ss *session) hasPlace(corr string, instances ...string) bool {
	who := ss.who.caller()
	if !ss.c.quotas.Exceeds(who, quota.Sessions) {
		return true
	}
	known, err := ss.c.engine.Knows(ss.stream.Context(), who.Tenant, instances...)
	switch {
	case known:
		return true
	case err == nil:
		err = ss.c.quotas.Refuse(who, quota.Sessions)
	}
	return ss.turnAway(corr, err)
}

// turnAway ends a stream before it has a session; its worker comes back later.
func (ss *session) turnAway(corr string, err error) bool {
	ended := refusal.Status(err)
	_ = ss.say(errorFrame(corr, &lessorv1.Error{
		Code: refusal.CodeOf(ended), Message: err.Error(), Remediation: "connect again later, or ask for a larger quota", RetryAfter: refusal.WaitOf(ended),
	}))
	ss.end(ended)
	return false
}

// charge counts a frame (X5). None that a lease or the state of the session depends on is refused; of feedback see mayPass.
func (ss *session) charge(kind frameKind) {
	if kind != frameFeedback {
		ss.c.quotas.Charge(ss.who.caller(), quota.Frames, 1)
	}
}

// mayPass refuses feedback for which there are no frames left.
func (ss *session) mayPass(corr string) bool {
	err := ss.c.quotas.Spend(ss.who.caller(), quota.Frames, 1)
	if err != nil {
		ended := refusal.Status(err)
		ss.fines.add(1)
		ss.out.refuse(corr, &lessorv1.Error{
			Code: refusal.CodeOf(ended), Message: err.Error(), Remediation: "send less feedback, or ask for a larger quota", RetryAfter: refusal.WaitOf(ended),
		})
	}
	return err == nil
}
