package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// recordRefusal adds a refused report to the history of the task, so that a reader can see later
// what the worker sent (T10). It records each combination of lease, kind and reason once, because a
// worker may repeat a report without end. Under a live lease, the report acknowledges the grant
// (W5). It returns the answer unchanged.
func (s *step) recordRefusal(r *Report, k Ticket, a Answer) Answer {
	if !s.issuedForTask(k) {
		return a
	}
	if _, ended := s.leaseEnded(k); !ended && s.acknowledge() { // whoever reports, however badly, has the lease
		s.note(EventAcknowledged, s.now.Wall, s.task.Lease.Worker, NoReason, "by a refused "+r.Kind.String())
	}
	if r.Kind == KindAck || a.Reason == AlreadyReported { // AlreadyReported is normal: a heartbeat crossed the report
		return a
	}
	detail := a.Detail
	if kept := s.keepDiscarded(r, k, a); kept != "" {
		detail += "; " + kept
	} else if s.refusedBefore(r.Kind, k.Attempt, a.Reason) {
		return a
	}
	s.record(Event{
		Type: EventRefused, At: s.now.Wall, Attempt: k.Attempt,
		Actor: cmp.Or(r.Worker, s.holderOf(k.Attempt)), Reason: a.Reason, Detail: detail, Kind: r.Kind,
	})
	return a
}

// issuedForTask reports whether the ticket certainly belongs to an attempt of the open task. If it
// is older than a restore, it may be of an attempt that the restore has lost. The task may have had
// another one with the same number since; what is remembered must not be taken for that of the
// other.
func (s *step) issuedForTask(k Ticket) bool {
	t := s.task
	return t != nil && !t.neverHad(k) && (s.rules.Authority.knows(k.Epoch) || k.Attempt == t.Last.Attempt)
}

// refusedBefore reports whether the history already has a refusal with this kind, attempt and
// reason.
func (s *step) refusedBefore(kind Kind, attempt uint32, reason Reason) bool {
	matches := func(e Event) bool {
		return e.Type == EventRefused && e.Kind == kind && e.Attempt == attempt && e.Reason == reason
	}
	l := s.task.Lease
	return slices.ContainsFunc(s.task.History, matches) || l != nil && slices.ContainsFunc(l.Events, matches)
}

// keepDiscarded keeps the first result that arrives under a lease after the lease has ended, so
// that an operator can still adopt hours of work (V15). It returns words for the history that say
// what it did, or "" if there was nothing to keep.
func (s *step) keepDiscarded(r *Report, k Ticket, a Answer) string {
	if r.Kind != KindComplete || a.Verdict != VerdictCancelled || s.task.KeepsResultOf(k.Attempt) {
		return ""
	}
	result := r.result()
	size := result.Size()
	if limit := s.rules.Limits.Discarded; size > limit {
		if s.refusedBefore(r.Kind, k.Attempt, a.Reason) {
			return ""
		}
		return fmt.Sprintf("its result of %s is over the limit of %d and was not kept", countOf(size, "byte"), limit)
	}
	t, holder := s.write(), s.holderOf(k.Attempt)
	t.Discarded = append(slices.Clip(t.Discarded), Discarded{
		Attempt: k.Attempt, Nonce: k.Nonce, Worker: cmp.Or(r.Worker, holder), At: s.now.Wall,
		Reason: a.Reason, Size: size,
	})
	if len(t.Discarded) > MaxDiscarded {
		s.change.Dropped = append(s.change.Dropped, t.Discarded[0].Attempt)
		t.Discarded = t.Discarded[1:]
	}
	s.change.Kept = append(s.change.Kept, Kept{Attempt: k.Attempt, Result: result.withWorker(holder)})
	return fmt.Sprintf("its result of %s is kept", countOf(size, "byte"))
}

// holderOf returns the worker to which an attempt was granted. It is empty if the history does not
// have that grant any more.
func (s *step) holderOf(attempt uint32) string {
	t := s.task
	switch {
	case t.Lease != nil && t.Lease.Attempt == attempt:
		return t.Lease.Worker
	case t.Last.Attempt == attempt:
		return t.Last.Worker
	}
	for _, e := range t.History {
		if e.Type == EventGranted && e.Attempt == attempt {
			return e.Actor
		}
	}
	return ""
}

// KeepsResultOf reports whether the task keeps a discarded result of the attempt (V15).
func (t *Task) KeepsResultOf(attempt uint32) bool {
	return slices.ContainsFunc(t.Discarded, func(d Discarded) bool { return d.Attempt == attempt })
}

// Size returns about how many bytes a result has.
func (r *Result) Size() int {
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

// adopt makes a discarded result the outcome of the round. The verdict on the report that brought
// the result stays CANCELLED (V15).
func (s *step) adopt(c Adopt) error {
	t, err := s.openForTenant(c.Tenant, c.Task)
	switch {
	case err != nil:
		return err
	case t.Lease != nil:
		return &StateError{
			Task: t.ID, State: t.State(),
			Why: "a result can be adopted only while no worker holds the task",
		}
	case t.Outcome != nil:
		why := "a result can be adopted only while the round has no outcome"
		if t.Rest != Completed {
			why += "; pause its queue, so that no worker takes the task, and retry it first"
		}
		return &StateError{Task: t.ID, State: t.State(), Why: why}
	}
	attempt := c.Attempt
	if n := len(t.Discarded); attempt == 0 && n > 0 {
		attempt = t.Discarded[n-1].Attempt
	}
	if t.KeepsResultOf(attempt) {
		s.change.Result = s.view.Discarded(t.ID, attempt)
	}
	if s.change.Result == nil {
		return &StateError{
			Task: t.ID, State: t.State(),
			Why: "no discarded result" + ofAttempt(c.Attempt) + " is kept" + t.keptAttempts(),
		}
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

// keptAttempts names the attempts whose discarded results are kept, for the end of a sentence; it
// is empty if there are none.
func (t *Task) keptAttempts() string {
	if len(t.Discarded) == 0 {
		return ""
	}
	var attempts []string
	for i := range t.Discarded {
		attempts = append(attempts, fmt.Sprint(t.Discarded[i].Attempt))
	}
	return "; attempts whose results are kept: " + strings.Join(attempts, ", ")
}
