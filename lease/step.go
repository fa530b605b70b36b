package lease

import "slices"

// step is the state of one decision. Every command but Submit concerns one task, which the comments
// call the open task.
type step struct {
	rules *Rules
	now   Now
	view  View
	out   Step

	opened bool  // the open task was looked up
	old    *Task // the open task before the step; nil: there was none
	task   *Task // its newest version; nil: there is none, or it was removed
	fresh  bool  // task is a copy that this step made, so the step may write to it
	change Change
}

// open loads a task and applies its due timers (A3). It returns nil if there is no such task, or if
// a timer removed it.
func (s *step) open(id TaskID) *Task { return s.openFound(s.newest(id)) }

// newest returns the newest version of the open task, or the version in the view if the step has
// not opened a task yet.
func (s *step) newest(id TaskID) *Task {
	if s.opened {
		return s.task
	}
	return s.view.Task(id)
}

// openFound is open for a task that the caller has looked up already.
func (s *step) openFound(newest *Task) *Task {
	if !s.opened {
		s.opened, s.old, s.task = true, newest, newest
	}
	if s.task != nil {
		s.applyDueTimers()
	}
	return s.task
}

// openForTenant opens a task of the tenant. If the tenant does not have the task, the error is
// ErrNotFound, even if another tenant has it.
func (s *step) openForTenant(tenant string, id TaskID) (*Task, error) {
	if t := s.open(id); t == nil || t.Tenant != tenant {
		return nil, ErrNotFound
	}
	return s.task, nil
}

// close adds the open task to the result if it changed.
func (s *step) close() {
	if s.task == s.old {
		return
	}
	s.change.Old, s.change.New = s.old, s.task
	s.out.Changes = append(s.out.Changes, s.change)
}

// write returns a version of the task to which the step may write, and marks the row of the task as
// changed.
func (s *step) write() *Task {
	s.change.Row = true
	return s.newVersion()
}

// writeLease returns a version of the live lease to which the step may write. It does not mark the
// row of the task as changed.
func (s *step) writeLease() *Lease {
	t := s.newVersion()
	if s.old == nil || t.Lease == s.old.Lease {
		l := *t.Lease
		l.Events = slices.Clip(l.Events)
		t.Lease = &l
	}
	return t.Lease
}

// newVersion copies the task once per step, and returns the copy.
func (s *step) newVersion() *Task {
	if !s.fresh {
		t := *s.task
		t.History = slices.Clip(t.History)
		s.task, s.fresh = &t, true
	}
	return s.task
}

// note records an event of the open task. Call it after the change that it describes: the event
// carries the state after the change.
func (s *step) note(typ EventType, at Wall, actor string, reason Reason, detail string) {
	s.record(Event{Type: typ, At: at, Attempt: s.task.Attempt(), Actor: actor, Reason: reason, Detail: detail})
}

// record gives an event its sequence number and adds it: to the live lease if there is one, else to
// the task. The history is trimmed during a lease too, because refusals can add events without end:
// a result that is kept may drop another one, which can then be reported and kept again.
func (s *step) record(e Event) {
	e.Seq, e.Detail, e.State = s.view.NextSeq(s.task.ID.Space), Clip(e.Detail, maxDetail), s.task.State()
	if s.task.Lease != nil {
		l := s.writeLease()
		l.Events = append(l.Events, e)
		if len(s.task.History)+len(l.Events) > MaxHistory {
			s.write().trim()
		}
		return
	}
	t := s.write()
	t.History = append(t.History, e)
	t.trim()
}

// trim drops the oldest events if there are more than MaxHistory, including those of the live
// lease. The step must have made that lease writable.
func (t *Task) trim() {
	over := len(t.History) - MaxHistory
	if t.Lease != nil {
		over += len(t.Lease.Events)
	}
	if over <= 0 {
		return
	}
	ofTask := min(over, len(t.History))
	t.History = t.History[ofTask:]
	if ofLease := over - ofTask; ofLease > 0 {
		t.Lease.Events = t.Lease.Events[ofLease:]
	}
	t.Dropped += uint32(over)
}
