package lease

import (
	"fmt"
	"time"
)

// timerKind orders timers that are due at the same instant. Limits that the producer set come
// before the expiry of the lease: a lease ends at them at the latest (A3).
type timerKind uint8

const (
	timerDeadline timerKind = iota
	timerResource
	timerAttempt
	timerCancel
	timerAck
	timerExpiry
	timerReady
	timerStart
	timerRetention
)

// timer is due at a time of one of the two clocks; the field of the other clock is 0.
type timer struct {
	kind    timerKind
	serving Instant
	wall    Wall
}

// timers calls each with every timer that the task has in its present state. It allocates no list,
// because every step calls it.
func (t *Task) timers(each func(timer)) {
	switch {
	case t.Lease != nil:
		t.leaseTimers(each)
		return
	case t.Rest.Final():
		each(timer{kind: timerRetention, wall: t.FinishedAt.Add(t.Spec.Retention)})
		return
	}
	if t.Deadline != 0 {
		each(timer{kind: timerDeadline, wall: t.Deadline})
	}
	if t.Spec.ResourceRefs != nil {
		t.resourceTimer(each)
	}
	if t.Rest == Scheduled {
		each(timer{kind: timerReady, wall: t.RunAt, serving: t.RetryAt})
	} else if d := t.Spec.StartTimeout; d != 0 {
		each(timer{kind: timerStart, serving: t.ReadyAt.Add(d)})
	}
}

// resourceTimer calls each with the timer of the resource that expires first. If the resource
// expires while the task is leased, the timer takes effect at the end of the lease.
func (t *Task) resourceTimer(each func(timer)) {
	first, since := t.Spec.firstExpiry(), t.CreatedAt
	if t.Last.Attempt != 0 {
		since = t.Last.At
	}
	if first != 0 {
		each(timer{kind: timerResource, wall: max(first, since)})
	}
}

func (t *Task) leaseTimers(each func(timer)) {
	l := t.Lease
	each(timer{kind: timerExpiry, serving: l.ExpiresAt})
	if l.AwaitsAck() {
		each(timer{kind: timerAck, serving: l.AckBy})
	}
	if t.Cancel != nil { // then attempt_timeout and deadline do not apply any more (T7)
		each(timer{kind: timerCancel, serving: l.CancelBy})
		return
	}
	if l.AttemptBy != 0 {
		each(timer{kind: timerAttempt, serving: l.AttemptBy})
	}
	if t.Deadline != 0 {
		each(timer{kind: timerDeadline, wall: t.Deadline})
	}
}

// overdueBy returns for how long the timer has been due; ok is false if it is not due yet.
func (tm timer) overdueBy(now Now) (d Instant, ok bool) {
	if tm.serving != 0 {
		d = now.Serving - tm.serving
	} else {
		d = Instant(now.Wall - tm.wall)
	}
	return d, d >= 0 // due at equality (A3)
}

// applyDueTimers applies the due timers in due order, each at its own time (A3), until none is due.
// The loop ends, because each timer leads to a state with fewer timers, and no timer grants a
// lease.
func (s *step) applyDueTimers() {
	for s.task != nil {
		first, found := timer{}, false
		longest := Instant(0)
		s.task.timers(func(tm timer) {
			d, due := tm.overdueBy(s.now)
			if due && (!found || d > longest || d == longest && tm.kind < first.kind) {
				first, found, longest = tm, true, d
			}
		})
		if !found {
			return
		}
		s.fire(first)
	}
}

// timeOf returns the time at which a timer takes effect. For a timer on the wall clock, the serving
// time is that of now.
func (s *step) timeOf(tm timer) Now {
	if tm.serving != 0 {
		return Now{Serving: tm.serving, Wall: s.now.WallAt(tm.serving)}
	}
	return Now{Serving: s.now.Serving, Wall: tm.wall}
}

func (s *step) fire(tm timer) {
	at := s.timeOf(tm)
	switch tm.kind {
	case timerDeadline:
		s.failAtDeadline(at)
	case timerResource:
		s.failResourceGone(at.Wall, "a resource that it needs has expired")
	case timerAttempt:
		s.attemptTimedOut(at)
	case timerCancel:
		s.failCancelTimeout(at)
	case timerAck:
		s.endSilentLease(DispatchUnacked, at)
	case timerExpiry:
		s.endSilentLease(LeaseExpired, at)
	case timerReady:
		s.becomeReady(at)
	case timerStart:
		s.finish(Failed, StartTimeout, at.Wall)
		s.note(EventEnded, at.Wall, "", StartTimeout, "no worker took it within start_timeout")
	case timerRetention:
		s.remove()
	}
}

// failAtDeadline ends the task because its deadline passed (T6).
func (s *step) failAtDeadline(at Now) {
	if s.task.Lease != nil {
		s.revoke(DeadlineExceeded, at.Wall)
	}
	s.finish(Failed, DeadlineExceeded, at.Wall)
	s.note(EventEnded, at.Wall, "", DeadlineExceeded, "the deadline passed")
}

// failResourceGone ends a waiting task because its resources are gone (W12).
func (s *step) failResourceGone(at Wall, detail string) {
	s.finish(Failed, ResourceGone, at)
	s.note(EventEnded, at, "", ResourceGone, detail)
}

// attemptTimedOut ends the attempt at its attempt_timeout. That counts as a failure of category
// TIMEOUT (T5), unless it came so early that the session was still to acknowledge the grant (W5).
// Of grants in a row to the same process only the first one goes uncounted: a process that always
// acknowledges later than that would otherwise get the task again without end.
func (s *step) attemptTimedOut(at Now) {
	l := s.revoke(DeadlineExceeded, at.Wall)
	detail := "attempt_timeout of " + s.task.Spec.AttemptTimeout.String() + " passed"
	if l.AwaitsAck() && InstanceOf(l.Session) != s.task.UnackedBy {
		s.countUnacked(l, at)
		s.note(EventLeaseEnded, at.Wall, l.Worker, DeadlineExceeded, detail+", and the grant had not been acknowledged")
		return
	}
	f := &Failure{Category: Timeout, Message: detail}
	s.keepFailure(f)
	s.countFailure(f, at)
	if s.task.Rest == Failed {
		s.task.Reason = DeadlineExceeded
	}
	s.note(EventLeaseEnded, at.Wall, l.Worker, DeadlineExceeded, detail)
}

// failCancelTimeout ends a cancelled task whose worker did not stop within cancel_grace (T7).
func (s *step) failCancelTimeout(at Now) {
	l := s.revoke(CancelTimeout, at.Wall)
	s.finish(Failed, CancelTimeout, at.Wall)
	s.note(EventLeaseEnded, at.Wall, l.Worker, CancelTimeout, "cancel_grace passed without a report")
}

// endSilentLease ends a lease whose holder was silent: the lease expired, or nobody acknowledged
// the grant.
func (s *step) endSilentLease(cause Reason, at Now) {
	l := s.revoke(cause, at.Wall)
	switch {
	case s.task.Cancel != nil:
		s.finish(Cancelled, TaskCancelled, at.Wall)
	case l.AckedAt == 0:
		s.countUnacked(l, at)
	default:
		s.countLoss(at)
	}
	s.note(EventLeaseEnded, at.Wall, l.Worker, cause,
		silenceDetail(l, cause)+stallDetail(l, s.task.Spec.HeartbeatTimeout))
}

// stallDetail says in words by how much stalls of the coordinator have extended a lease that has
// ended all the same: its holder may have said something in that time which the coordinator had not
// read. It is empty if there was no stall.
func stallDetail(l *Lease, ttl time.Duration) string {
	switch by := time.Duration(l.Stalled); {
	case by == 0:
		return ""
	case by < ttl:
		return fmt.Sprintf("; the coordinator stood still meanwhile, which extended the lease by %v",
			by.Round(time.Millisecond))
	}
	return fmt.Sprintf("; the coordinator stood still meanwhile, for at least the %v by which it can extend the lease", ttl)
}

// silenceDetail says in words what did not arrive from the holder, and what was rejected instead.
func silenceDetail(l *Lease, cause Reason) string {
	switch {
	case cause == DispatchUnacked:
		return "the grant was not acknowledged"
	case l.AckedAt == 0:
		return "the worker sent nothing after the grant"
	}
	came, after := "came", "the acknowledgement"
	switch {
	case l.HeartbeatAt != 0:
		after = "the one at " + l.HeartbeatAt.Time().Format("15:04:05.000")
	case l.StartedAt != 0:
		after = "the start"
	}
	rejected := l.rejected()
	if rejected == nil {
		return "no heartbeat came after " + after
	}
	if rejected.Kind == KindHeartbeat {
		came = "was accepted"
	}
	return "no heartbeat " + came + " after " + after + "; " + rejected.rejection()
}

// becomeReady makes a SCHEDULED task READY. A task that waited for its run_at gets the last place
// in its line; a task that had an attempt keeps its old place (T2).
func (s *step) becomeReady(at Now) {
	t := s.write()
	t.RunAt = 0
	s.putBack(at, 0)
	if t.Place == 0 {
		t.Place = s.view.NextSeq(t.ID.Space)
	}
	s.note(EventReady, at.Wall, "", NoReason, "")
}
