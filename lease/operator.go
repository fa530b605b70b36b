package lease

import "cmp"

// cancel asks a task to end. A task that no worker holds ends at once; otherwise its worker has
// cancel_grace to stop (T7).
func (s *step) cancel(c Cancel) error {
	t, err := s.openForTenant(c.Tenant, c.Task)
	if err != nil {
		return err
	}
	switch t.State() {
	case Cancelled, Cancelling: // the same answer again; the grace does not restart
		return nil
	case Completed, Failed:
		return &StateError{Task: t.ID, State: t.State(), Why: "only a task that has not ended can be cancelled"}
	}
	s.write().Cancel = &CancelRequest{Reason: c.Reason, By: c.By, At: s.now.Wall}
	if t.Lease == nil {
		s.finish(Cancelled, TaskCancelled, s.now.Wall)
	} else {
		s.writeLease().CancelBy = s.now.Serving.Add(t.Spec.CancelGrace)
		s.change.CancelAsked = true
	}
	s.note(EventCancelRequested, s.now.Wall, c.By, TaskCancelled, c.Reason)
	return nil
}

// retry opens a new round: budgets begin again, attempts go on, the place in line is new (T9).
func (s *step) retry(c Retry) error {
	t, err := s.openForTenant(c.Tenant, c.Task)
	if err != nil {
		return err
	}
	if t.Rest != Failed && t.Rest != Cancelled {
		return &StateError{Task: t.ID, State: t.State(), Why: "only a FAILED or CANCELLED task can be retried"}
	}
	deadline := cmp.Or(c.Deadline, t.Deadline)
	if deadline != 0 && deadline <= s.now.Wall {
		return bad("deadline", "%s has passed; a later one is required", deadline.Time().Format(clockTime))
	}
	if err := t.Spec.checkNotExpired(s.now.Wall); err != nil {
		return err
	}
	s.keepOutcome()
	t = s.write()
	t.Round++
	t.Failures, t.Losses, t.Releases, t.Unacked, t.UnackedBy = 0, 0, 0, 0, ""
	t.Cancel, t.Outcome, t.Reason, t.FinishedAt, t.Deadline = nil, nil, NoReason, 0, deadline
	t.Place = s.view.NextSeq(t.ID.Space)
	s.putBack(s.now, 0)
	s.note(EventRetried, s.now.Wall, c.By, NoReason, "")
	return nil
}

// delete removes a task. If a worker holds the task, the command needs force (T9).
func (s *step) delete(c Delete) error {
	t, err := s.openForTenant(c.Tenant, c.Task)
	if err != nil {
		return err
	}
	if t.Lease != nil {
		if !c.Force {
			return &StateError{
				Task: t.ID, State: t.State(),
				Why: "a task that a worker holds can be deleted only with force",
			}
		}
		s.revoke(Revoked, s.now.Wall)
	}
	s.remove()
	return nil
}
