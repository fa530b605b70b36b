package lease

import (
	"cmp"
	"slices"
	"time"
)

// This file has the parts that several transitions share. Each works on the open task.

// finish ends the round.
func (s *step) finish(state State, reason Reason, at Wall) {
	t := s.write()
	t.Rest, t.Reason, t.FinishedAt = state, reason, at
	t.RunAt, t.RetryAt, t.Parked = 0, 0, false
}

// putBack puts the task back in its line: at once as READY, or as SCHEDULED until d has passed.
func (s *step) putBack(at Now, d time.Duration) {
	t := s.write()
	if d <= 0 {
		t.Rest, t.ReadyAt, t.RetryAt = Ready, at.Serving, 0
		return
	}
	t.Rest, t.ReadyAt, t.RetryAt = Scheduled, 0, at.Serving.Add(d)
}

// endLease ends the live lease for ever (A4) and returns it. The caller must then call finish or
// putBack for the task, or remove it.
func (s *step) endLease(cause Reason, at Wall) *Lease {
	t := s.write()
	l := t.Lease
	t.Last = Ended{
		Attempt:     l.Attempt,
		Nonce:       l.Nonce,
		Cause:       cause,
		At:          at,
		Worker:      l.Worker,
		GrantedAt:   l.GrantedAt,
		AckedAt:     l.AckedAt,
		StartedAt:   l.StartedAt,
		HeartbeatAt: l.HeartbeatAt,
	}
	t.Attempts = l.Attempt
	t.Lease = nil
	t.History = append(slices.Grow(t.History, len(l.Events)+1), l.Events...) // + 1: room for the event of the end
	t.trim()
	if l.AckedAt != 0 || cause == Reported {
		t.Unacked, t.UnackedBy = 0, ""
	}
	return l
}

// revoke is endLease for a lease that its holder did not end by a report. The Change then names the
// lease, so that the holder is told.
func (s *step) revoke(cause Reason, at Wall) *Lease {
	l := s.endLease(cause, at)
	s.change.Lost, s.change.LostCause = l, cause
	return l
}

// countFailure counts a failure. The task gets another attempt after a backoff, or is FAILED (T3,
// T5).
func (s *step) countFailure(f *Failure, at Now) {
	t := s.write()
	t.Releases = 0
	t.Failures++
	p := &t.Spec.Retry
	if t.Failures >= p.MaxAttempts || !p.retries(f) {
		s.finish(Failed, NoReason, at.Wall)
		return
	}
	d := min(f.RetryAfter, MaxDelay)
	if d <= 0 {
		d = p.backoff(t.Failures-1, s.rules.Entropy())
	}
	s.putBack(at, d)
}

// countLoss counts a loss. At max_losses, the task is FAILED and quarantined. Before that, it is
// READY at once after the first loss, and waits for a backoff after a later one (T5).
func (s *step) countLoss(at Now) {
	t := s.write()
	t.Releases = 0
	t.Losses++
	switch p := &t.Spec.Retry; {
	case t.Losses >= p.MaxLosses:
		s.finish(Failed, HeartbeatTimeout, at.Wall)
	case t.Losses == 1:
		s.putBack(at, 0)
	default:
		s.putBack(at, p.backoff(t.Losses-2, s.rules.Entropy()))
	}
}

// countUnacked counts a grant that nobody acknowledged. The task goes back in its line, or is
// FAILED after MaxUnacked such grants in a row (W5). Grants in a row to sessions of the same worker
// process count once: if its stream breaks again and again, the task is not at fault.
func (s *step) countUnacked(l *Lease, at Now) {
	t := s.write()
	if by := InstanceOf(l.Session); by == "" || by != t.UnackedBy {
		t.Unacked++
		t.UnackedBy = by
	}
	if t.Unacked >= MaxUnacked {
		s.finish(Failed, DispatchUnavailable, at.Wall)
		return
	}
	s.takeBack(l, at)
}

// takeBack puts the task back in its line after a lease of which its worker gave no sign. To the
// task this is as if there had been no grant: the time for which it was READY before counts on
// (T6).
func (s *step) takeBack(l *Lease, at Now) {
	before := s.task.ReadyAt
	s.putBack(at, 0)
	granted := l.ExpiresAt.Add(-s.task.Spec.HeartbeatTimeout - time.Duration(l.Stalled)) // it was never renewed
	s.task.ReadyAt = before.Add(max(at.Serving.Sub(granted), 0))
}

func (s *step) keepFailure(f *Failure) {
	s.write().ErrorCategory = cmp.Or(f.Category, UserCode)
	s.change.Failure = f
}

// keepOutcome moves the report that ended the last round to the ledger, where its repeats find it
// (V4).
func (s *step) keepOutcome() {
	if o := s.task.Outcome; o != nil {
		s.change.Ledger = append(s.change.Ledger, *o)
	}
}

// remove deletes the task. Its committed reports are still replayed for LedgerAfterDelete (A10).
func (s *step) remove() {
	s.keepOutcome()
	if s.task.Attempts > 0 {
		s.change.ForgetAt = s.now.Serving.Add(LedgerAfterDelete)
	}
	s.change.Row = true
	s.task = nil
}
