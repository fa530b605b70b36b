package lease

import (
	"cmp"
	"fmt"
	"slices"
)

// refuse records that a report under a lease of this task was refused, so that the worker's side of the story can be read later (T10). It
// records each combination of lease, kind and reason once, because a worker may repeat itself without end. It returns the answer, unchanged.
func (s *step) refuse(r *Report, k Ticket, a Answer) Answer {
	if !s.granted(k) || r.Kind == KindAck || a.Reason == AlreadyReported { // AlreadyReported answers every heartbeat that crosses a report
		return a
	}
	detail := a.Detail
	if kept := s.discard(r, k, a); kept != "" {
		detail += "; " + kept
	} else if s.refusedBefore(r.Kind, k.Attempt, a.Reason) {
		return a
	}
	s.record(Event{
		Type: EventRefused, At: s.now.Wall, Attempt: k.Attempt, Actor: cmp.Or(r.Worker, s.holder(k.Attempt)), Reason: a.Reason, Detail: detail, Kind: r.Kind,
	})
	return a
}

// granted reports whether the open task is certainly the one for which the ticket was issued. After a restore it may be another task: the
// restore can lose a task and give its id to a new one.
func (s *step) granted(k Ticket) bool {
	t := s.task
	return t != nil && (k.Epoch == s.rules.Authority.Epoch || k.Attempt == t.Last.Attempt && k.Nonce == t.Last.Nonce)
}

// holder returns the worker of the live lease or of the lease that ended last, if that lease is of the given attempt; else it is empty. See
// holderOf for all attempts.
func (s *step) holder(attempt uint32) string {
	switch t := s.task; {
	case t.Lease != nil && t.Lease.Attempt == attempt:
		return t.Lease.Worker
	case t.Last.Attempt == attempt:
		return t.Last.Worker
	}
	return ""
}

func (s *step) refusedBefore(kind Kind, attempt uint32, reason Reason) bool {
	is := func(e *Event) bool {
		return e.Type == EventRefused && e.Kind == kind && e.Attempt == attempt && e.Reason == reason
	}
	for i := range s.task.History {
		if is(&s.task.History[i]) {
			return true
		}
	}
	if l := s.task.Lease; l != nil {
		for i := range l.Events {
			if is(&l.Events[i]) {
				return true
			}
		}
	}
	return false
}

// discard keeps the first result that arrives under a lease after the lease has ended, so that hours of work are not thrown away unseen
// (V15). It returns what it did, in words, or "" if there was nothing to keep.
func (s *step) discard(r *Report, k Ticket, a Answer) string {
	if r.Kind != KindComplete || a.Verdict != VerdictCancelled || s.task.Keeps(k.Attempt) {
		return ""
	}
	result := r.result()
	size := result.size()
	if limit := s.rules.Limits.Discarded; size > limit {
		if s.refusedBefore(r.Kind, k.Attempt, a.Reason) {
			return ""
		}
		return fmt.Sprintf("its result of %s is over the limit of %d and was not kept", counted(size, "byte"), limit)
	}
	t := s.write()
	t.Discarded = append(slices.Clip(t.Discarded), Discarded{
		Attempt: k.Attempt, Nonce: k.Nonce, Worker: r.Worker, At: s.now.Wall, Reason: a.Reason, Size: size,
	})
	if len(t.Discarded) > MaxDiscarded {
		s.change.Dropped = append(s.change.Dropped, t.Discarded[0].Attempt)
		t.Discarded = t.Discarded[1:]
	}
	s.change.Kept = append(s.change.Kept, Kept{Attempt: k.Attempt, Result: result.by(s.holderOf(k.Attempt))})
	return fmt.Sprintf("its result of %s is kept", counted(size, "byte"))
}

// holderOf returns the worker to which an ended attempt was granted, from the history if need be. It is empty if the history has dropped
// that grant.
func (s *step) holderOf(attempt uint32) string {
	if s.task.Last.Attempt == attempt {
		return s.task.Last.Worker
	}
	for _, e := range s.task.History {
		if e.Type == EventGranted && e.Attempt == attempt {
			return e.Actor
		}
	}
	return ""
}

// Keeps reports whether a discarded result of the attempt is kept.
func (t *Task) Keeps(attempt uint32) bool {
	for i := range t.Discarded {
		if t.Discarded[i].Attempt == attempt {
			return true
		}
	}
	return false
}

// size returns roughly how many bytes a result has.
func (r *Result) size() int {
	n := len(r.Output)
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		n += len(a.ResourceID) + len(a.WorkerID) + len(a.Type)
		for k, v := range a.Metadata {
			n += len(k) + len(v)
		}
	}
	for k := range r.Metrics {
		n += len(k) + 8
	}
	return n
}

// adopt makes a discarded result the outcome of the round. The report that brought it stays CANCELLED (V15).
func (s *step) adopt(c Adopt) error {
	t, err := s.of(c.Tenant, c.Task)
	switch {
	case err != nil:
		return err
	case t.Lease != nil:
		return &StateError{Task: t.ID, State: t.State(), Why: "a result can be adopted only while no worker holds the task"}
	case t.Outcome != nil:
		return &StateError{Task: t.ID, State: t.State(), Why: "a result can be adopted only while the round has no outcome"}
	}
	attempt := c.Attempt
	if n := len(t.Discarded); attempt == 0 && n > 0 {
		attempt = t.Discarded[n-1].Attempt
	}
	if t.Keeps(attempt) {
		s.change.Result = s.view.Discarded(t.ID, attempt)
	}
	if s.change.Result == nil {
		return &StateError{Task: t.ID, State: t.State(), Why: "no discarded result" + ofAttempt(c.Attempt) + " is kept"}
	}
	t = s.write()
	s.finish(Completed, NoReason, s.now.Wall)
	t.Outcome = &Committed{Attempt: attempt, Kind: KindAdopt, State: Completed, At: s.now.Wall}
	s.record(Event{Type: EventAdopted, At: s.now.Wall, Attempt: attempt, Actor: c.By, Reason: None})
	return nil
}

func ofAttempt(attempt uint32) string {
	if attempt == 0 {
		return ""
	}
	return fmt.Sprintf(" of attempt %d", attempt)
}
