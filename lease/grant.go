package lease

import (
	"fmt"
	"time"
)

// grant opens the next attempt of a READY task (A1, A2).
func (s *step) grant(c Grant) {
	t := s.open(c.Task)
	if t == nil || t.State() != Ready {
		return
	}
	switch s.out.Blocked = s.blocked(t, c.Behind); s.out.Blocked {
	case NoBlock:
	case BlockedByKey:
		s.park()
		return
	default:
		return
	}
	if t.Attempts >= MaxAttempt { // the fencing token has no more room
		s.finish(Failed, DispatchUnavailable, s.now.Wall)
		s.note(EventEnded, s.now.Wall, "", DispatchUnavailable, "no attempt number is left")
		return
	}
	l := &Lease{
		Epoch: s.rules.Authority.Epoch, Attempt: t.Attempts + 1, Nonce: s.rules.Entropy(),
		Worker: c.Worker, Session: c.Session, Request: c.Request, GrantedAt: s.now.Wall,
	}
	l.ID = s.rules.Authority.Issue(t.Tenant, l.ticket(t.ID))
	if c.Session != "" {
		l.AckBy = s.now.Serving.Add(s.rules.AckWithin)
	}
	if d := t.Spec.AttemptTimeout; d != 0 {
		l.AttemptBy = s.now.Serving.Add(d)
	}
	if t.Parked {
		s.write().Parked = false
	}
	s.newVersion().Lease = l
	s.renew()
	s.note(EventGranted, s.now.Wall, c.Worker, NoReason, c.Session)
}

// renew sets the lease to expire one TTL from now (A3).
func (s *step) renew() {
	l := s.writeLease()
	l.Stalled = 0
	s.expireAt(s.now.Serving.Add(s.task.Spec.HeartbeatTimeout))
}

// expireAt sets expires_at = max(old, until) (A3). It ignores attempt_timeout and the deadline,
// which are timers of their own: a lease cut to either would stay cut after a cancel, which ends
// both (T7), and one cut to the deadline, which is on the wall clock, could seem to expire a moment
// before it and count as a loss (T5). Task.ExpiresAt returns whichever comes first.
func (s *step) expireAt(until Instant) {
	l := s.writeLease()
	l.ExpiresAt = max(l.ExpiresAt, until)
}

// acknowledge records that the worker received the grant (W5). It reports whether this is the first
// sign of that.
func (s *step) acknowledge() (first bool) {
	if s.task.Lease.AckedAt != 0 {
		return false
	}
	s.writeLease().AckedAt = s.now.Wall
	return true
}

// loseResource fails a READY task because the worker that holds its resources is gone (W12).
func (s *step) loseResource(c LoseResource) {
	t := s.open(c.Task)
	if t == nil || t.State() != Ready || c.Worker == "" || t.Spec.Pinned() != c.Worker {
		return
	}
	s.failResourceGone(s.now.Wall, fmt.Sprintf("worker %q, which holds its resources, has been gone for %v",
		c.Worker, c.After))
}

// requeue ends a lease for a reason that is not the fault of the task, and puts the task back in
// its line.
func (s *step) requeue(c Requeue) {
	t := s.open(c.Task)
	if t == nil || t.Lease == nil || t.Lease.Attempt != c.Attempt {
		return
	}
	l := s.revoke(c.Cause, s.now.Wall)
	switch {
	case t.Cancel != nil:
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
	case l.AckedAt == 0:
		s.takeBack(l, s.now)
	default:
		s.putBack(s.now, 0)
	}
	s.note(EventLeaseEnded, s.now.Wall, l.Worker, c.Cause, c.Detail)
}

// stall extends a lease by the time for which the coordinator stood still and could not receive the
// holder's heartbeats: in total at most one TTL between two renewals (A8). Before that, it applies
// the timers that were due before the stall began, so a lease that ended before the stall stays
// ended (A4). Timers that came due during the stall are extended instead.
func (s *step) stall(c Stall) {
	now := s.now
	s.now = now.back(max(c.By, 0))
	t := s.open(c.Task)
	s.now = now
	if t == nil || t.Lease == nil {
		return
	}
	d := min(c.By, t.Spec.HeartbeatTimeout-time.Duration(t.Lease.Stalled))
	if d <= 0 {
		return
	}
	l := s.writeLease()
	l.Stalled = l.Stalled.Add(d)
	s.expireAt(l.ExpiresAt.Add(d))
	if l.AckBy != 0 {
		l.AckBy = l.AckBy.Add(d)
	}
	if l.AttemptBy != 0 {
		l.AttemptBy = l.AttemptBy.Add(d)
	}
	if l.CancelBy != 0 {
		l.CancelBy = l.CancelBy.Add(d)
	}
}
