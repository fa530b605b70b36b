package lease

import (
	"cmp"
	"math/bits"
)

// commit applies a report, Start, heartbeat or acknowledgement under the live lease, and returns
// the answer COMMITTED (V12, V19).
func (s *step) commit(r *Report) Answer {
	if l := s.task.Lease; r.Session != "" && r.Session != l.Session {
		s.writeLease().Session = r.Session // after a reconnect, the lease belongs to the new session
	}
	if r.Started {
		s.begin()
	}
	switch r.Kind {
	case KindStart:
		return s.start()
	case KindHeartbeat:
		return s.heartbeat(r)
	case KindAck:
		return s.ack()
	case KindComplete:
		return s.complete(r)
	case KindFail:
		return s.fail(r)
	default:
		return s.release(r)
	}
}

// start makes the task RUNNING. If a cancel came before the first Start, it ends the task as
// CANCELLED instead (T7).
func (s *step) start() Answer {
	t := s.task
	if t.Cancel != nil && t.Lease.StartedAt == 0 {
		if s.acknowledge() {
			s.note(EventAcknowledged, s.now.Wall, t.Lease.Worker, NoReason, "by start")
		}
		l := s.endLease(TaskCancelled, s.now.Wall)
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
		s.note(EventLeaseEnded, s.now.Wall, l.Worker, TaskCancelled, "cancelled before its start")
		return s.withTaskState(cancelled(TaskCancelled, "the task was cancelled before its start"), l.Attempt)
	}
	s.begin()
	s.renew()
	return s.liveAnswer()
}

// begin records the start of an attempt, once. It never ends a task whose cancel came first: the
// worker did not ask whether it might begin. From a report that closes an attempt without a Start,
// it is only for the history, because a report needs no Start (V19).
func (s *step) begin() {
	if s.task.Lease.StartedAt != 0 {
		return
	}
	s.acknowledge()
	s.writeLease().StartedAt = s.now.Wall
	s.note(EventStarted, s.now.Wall, s.task.Lease.Worker, NoReason, "")
}

// heartbeat renews the lease and stores the checkpoint. It does not make a task RUNNING (V19).
func (s *step) heartbeat(r *Report) Answer {
	first := s.acknowledge()
	s.writeLease().HeartbeatAt = s.now.Wall
	s.renew()
	if first {
		s.note(EventAcknowledged, s.now.Wall, s.task.Lease.Worker, NoReason, "by heartbeat")
	}
	if size := len(r.Checkpoint); size > 0 {
		s.change.Checkpoint = r.Checkpoint
		if size > s.task.CheckpointBound() { // else the task need not be written again
			s.write().CheckpointBits = uint8(bits.Len(uint(size)))
		}
	}
	return s.liveAnswer()
}

// ack records that the grant arrived. It does not renew the lease.
func (s *step) ack() Answer {
	if s.acknowledge() {
		s.note(EventAcknowledged, s.now.Wall, s.task.Lease.Worker, NoReason, "")
	}
	return s.liveAnswer()
}

// liveAnswer returns the answer COMMITTED for a lease that stays live.
func (s *step) liveAnswer() Answer {
	a := Answer{
		Verdict:   VerdictCommitted,
		Reason:    None,
		State:     s.task.State(),
		ExpiresAt: s.task.ExpiresAt(s.now),
		Holding:   s.task.Holding(),
	}
	if c := s.task.Cancel; c != nil {
		a.ShouldCancel, a.CancelReason, a.CancelBy = true, c.Reason, s.task.Lease.CancelBy
	}
	return a
}

// complete commits a result, even if a cancel came before it (T7).
func (s *step) complete(r *Report) Answer {
	l := s.endLease(Reported, s.now.Wall)
	s.write().Releases = 0
	s.change.Result = r.result().withWorker(l.Worker)
	s.finish(Completed, NoReason, s.now.Wall)
	s.note(EventCompleted, s.now.Wall, l.Worker, None, "")
	return s.recordVerdict(r)
}

// fail commits a failure; the coordinator alone decides about another attempt (T3).
func (s *step) fail(r *Report) Answer {
	l := s.endLease(Reported, s.now.Wall)
	s.keepFailure(r.Failure)
	if s.task.Cancel != nil {
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
	} else {
		s.countFailure(r.Failure, s.now)
	}
	category := cmp.Or(r.Failure.Category, UserCode)
	said := category.String()
	if category == CategoryCancelled && s.task.Cancel == nil {
		said += ", though nobody had asked for a cancel"
	}
	s.note(EventFailed, s.now.Wall, l.Worker, None, said+": "+r.Failure.Message)
	return s.recordVerdict(r)
}

// release ends the attempt and puts the task back in its line. From the third release in a row, the
// task waits for a backoff (T5).
func (s *step) release(r *Report) Answer {
	l := s.endLease(Reported, s.now.Wall)
	t := s.write()
	t.Releases++
	delay := r.Delay
	if t.Releases > FreeReleases {
		delay = max(delay, t.Spec.Retry.backoff(t.Releases-FreeReleases-1, s.rules.Entropy()))
	}
	if t.Cancel != nil {
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
	} else {
		s.putBack(s.now, delay)
	}
	s.note(EventReleased, s.now.Wall, l.Worker, None, r.Detail)
	return s.recordVerdict(r)
}

// recordVerdict records that the report was COMMITTED, so that a repeat of the report gets the same
// verdict (V14). The record goes into the task if the report ended the round, else into the ledger.
// recordVerdict returns the answer.
func (s *step) recordVerdict(r *Report) Answer {
	t := s.write()
	done := Committed{
		Attempt: t.Last.Attempt,
		Nonce:   t.Last.Nonce,
		Kind:    r.Kind,
		Digest:  r.Digest(),
		State:   t.State(),
		At:      s.now.Wall,
	}
	if t.RetryAt != 0 {
		done.RetryAt = s.now.WallAt(t.RetryAt)
	}
	if t.Rest.Final() {
		t.Outcome = &done
	} else {
		s.change.Ledger = append(s.change.Ledger, done)
	}
	return Answer{Verdict: VerdictCommitted, Reason: None, State: done.State, RetryAt: done.RetryAt}
}
