package lease

import (
	"math"
	"slices"
	"time"
)

// What the transitions of a task have in common. Each is called on the open task and leaves it consistent.

// finish ends the round.
func (s *step) finish(state State, reason Reason, at Wall) {
	t := s.write()
	t.Rest, t.Reason, t.FinishedAt = state, reason, at
	t.RunAt, t.RetryAt, t.Parked = 0, 0, false
}

// wait puts the task back in its line, at once or after d.
func (s *step) wait(at Now, d time.Duration) {
	t := s.write()
	if d <= 0 {
		t.Rest, t.ReadyAt, t.RetryAt = Ready, at.Serving, 0
		return
	}
	t.Rest, t.ReadyAt, t.RetryAt = Scheduled, 0, at.Serving.Add(d)
}

// end closes the live lease for good (A4) and returns it. The caller must decide what becomes of the task: finish or wait.
func (s *step) end(cause Reason, at Wall) *Lease {
	t := s.write()
	l := t.Lease
	t.Last = Ended{
		Attempt: l.Attempt, Nonce: l.Nonce, Cause: cause, At: at,
		Worker: l.Worker, GrantedAt: l.GrantedAt, AckedAt: l.AckedAt, StartedAt: l.StartedAt, HeartbeatAt: l.HeartbeatAt,
	}
	t.Attempts = l.Attempt
	t.Lease = nil
	t.History = append(slices.Grow(t.History, len(l.Events)+1), l.Events...) // with room for what ended it
	t.trim()
	if l.AckedAt != 0 || cause == Reported {
		t.Unacked, t.UnackedBy = 0, ""
	}
	return l
}

// revoke is end for a lease that its holder did not end itself: the change then says whom to tell.
func (s *step) revoke(cause Reason, at Wall) *Lease {
	l := s.end(cause, at)
	s.change.Lost, s.change.LostTo = l, cause
	return l
}

// countFailure spends from the budget of failures: another attempt after a backoff, or FAILED (T3, T5).
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
	s.wait(at, d)
}

// countLoss spends from the budget of losses. After the first loss the task is READY at once, after later ones it waits, and the last one
// quarantines it (T5).
func (s *step) countLoss(at Now) {
	t := s.write()
	t.Releases = 0
	t.Losses++
	switch p := &t.Spec.Retry; {
	case t.Losses >= p.MaxLosses:
		s.finish(Failed, HeartbeatTimeout, at.Wall)
	case t.Losses == 1:
		s.wait(at, 0)
	default:
		s.wait(at, p.backoff(t.Losses-2, s.rules.Entropy()))
	}
}

// countUnacked puts a task back whose grant nobody acknowledged, or gives it up after MaxUnacked such grants in a row (W5). Grants in a row
// to sessions of the same worker process count once: a stream that flaps is not the task's fault.
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
	s.wait(at, 0)
}

// retries decides about another attempt from the kind of failure alone (T4).
func (p *RetryPolicy) retries(f *Failure) bool {
	category := f.Category.or(UserCode)
	for _, c := range p.NonRetryable {
		if c == category {
			return false
		}
	}
	if category == CategoryCancelled { // T7
		return false
	}
	if f.Retryable != nil {
		return *f.Retryable
	}
	return category.retried()
}

// backoff is the wait after n earlier ones: initial times multiplier^n, at most max, give or take Jitter (T3).
func (p *RetryPolicy) backoff(n uint32, entropy uint64) time.Duration {
	d := float64(p.InitialBackoff) * math.Pow(p.Multiplier, float64(n))
	d = min(d, float64(p.MaxBackoff)) // also when the power overflowed to +Inf
	unit := float64(entropy>>11) / (1 << 53)
	d *= 1 - Jitter + 2*Jitter*unit
	return max(time.Duration(d), 1)
}

func (s *step) keepFailure(f *Failure) {
	s.write().HasFailure = true
	s.change.Failure = f
}

// keepOutcome moves the report that ended the last round to the ledger, where its repeats find it (V4).
func (s *step) keepOutcome() {
	if o := s.task.Outcome; o != nil {
		s.change.Ledger = append(s.change.Ledger, *o)
	}
}

// remove deletes the task. What was committed is replayed for a while longer (A10).
func (s *step) remove() {
	s.keepOutcome()
	if s.task.Attempts > 0 {
		s.change.ForgetAt = s.now.Serving.Add(LedgerAfterDelete)
	}
	s.change.Row = true
	s.task = nil
}
