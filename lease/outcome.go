package lease

// commit records what a worker says under its live lease (V12, V19).
func (s *step) commit(r *Report) Answer {
	if l := s.task.Lease; r.Session != "" && r.Session != l.Session {
		s.writeLease().Session = r.Session // after a reconnect the lease follows the stream that speaks for it
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

// start begins execution, unless a cancel came first (T7).
func (s *step) start() Answer {
	t := s.task
	if t.Cancel != nil && t.Lease.StartedAt == 0 {
		if s.acknowledge() {
			s.note(EventAcknowledged, s.now.Wall, t.Lease.Worker, NoReason, "by start")
		}
		l := s.end(TaskCancelled, s.now.Wall)
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
		s.note(EventLeaseEnded, s.now.Wall, l.Worker, TaskCancelled, "cancelled before its start")
		return s.with(cancelled(TaskCancelled, "the task was cancelled before its start"), l.Attempt)
	}
	s.acknowledge()
	first := t.Lease.StartedAt == 0
	if first {
		s.writeLease().StartedAt = s.now.Wall
	}
	s.renew()
	if first {
		s.note(EventStarted, s.now.Wall, s.task.Lease.Worker, NoReason, "")
	}
	return s.live()
}

// heartbeat renews. It does not make a task RUNNING (V19).
func (s *step) heartbeat(r *Report) Answer {
	first := s.acknowledge()
	s.writeLease().HeartbeatAt = s.now.Wall
	s.renew()
	if first {
		s.note(EventAcknowledged, s.now.Wall, s.task.Lease.Worker, NoReason, "by heartbeat")
	}
	if len(r.Checkpoint) > 0 {
		s.change.Checkpoint = r.Checkpoint
		if !s.task.HasCheckpoint {
			s.write().HasCheckpoint = true
		}
	}
	return s.live()
}

// ack tells that the grant arrived; it renews nothing.
func (s *step) ack() Answer {
	if s.acknowledge() {
		s.note(EventAcknowledged, s.now.Wall, s.task.Lease.Worker, NoReason, "")
	}
	return s.live()
}

// live answers under a lease that lives on.
func (s *step) live() Answer {
	a := Answer{
		Verdict: VerdictCommitted, Reason: None, State: s.task.State(), ExpiresAt: s.task.ExpiresAt(s.now), Holding: s.task.Holding(),
	}
	if c := s.task.Cancel; c != nil {
		a.ShouldCancel, a.CancelReason = true, c.Reason
	}
	return a
}

// complete commits a result, even if a cancel came while the worker finished (T7).
func (s *step) complete(r *Report) Answer {
	l := s.end(Reported, s.now.Wall)
	s.write().Releases = 0
	s.change.Result = r.result().by(l.Worker)
	s.finish(Completed, NoReason, s.now.Wall)
	s.note(EventCompleted, s.now.Wall, l.Worker, None, "")
	return s.committing(r)
}

// fail commits a failure; the coordinator alone decides about another attempt (T3).
func (s *step) fail(r *Report) Answer {
	l := s.end(Reported, s.now.Wall)
	s.keepFailure(r.Failure)
	if s.task.Cancel != nil {
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
	} else {
		s.countFailure(r.Failure, s.now)
	}
	category := r.Failure.Category.or(UserCode)
	s.note(EventFailed, s.now.Wall, l.Worker, None, category.String()+": "+r.Failure.Message)
	return s.committing(r)
}

// release takes the task back; from the third time in a row it waits a little (T5).
func (s *step) release(r *Report) Answer {
	l := s.end(Reported, s.now.Wall)
	t := s.write()
	t.Releases++
	delay := r.Delay
	if t.Releases > FreeReleases {
		delay = max(delay, t.Spec.Retry.backoff(t.Releases-FreeReleases-1, s.rules.Entropy()))
	}
	if t.Cancel != nil {
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
	} else {
		s.wait(s.now, delay)
	}
	s.note(EventReleased, s.now.Wall, l.Worker, None, r.Detail)
	return s.committing(r)
}

// committing keeps the verdict, so that a repeat of the report gets it again (V14): in the task if the report ended the round, else in the
// ledger. It returns the answer.
func (s *step) committing(r *Report) Answer {
	t := s.write()
	done := Committed{
		Attempt: t.Last.Attempt, Nonce: t.Last.Nonce, Kind: r.Kind, Digest: r.Digest(), State: t.State(), At: s.now.Wall,
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
