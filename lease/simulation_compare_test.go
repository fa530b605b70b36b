package lease_test

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// compare checks that rules and model agree on the tasks that the last step concerned. In one of
// 256 calls it compares all tasks, because a step must not change others.
func (w *world) compare() error {
	if w.rng.IntN(256) == 0 {
		w.touched = append(w.touched, w.tasks...)
	}
	for _, id := range w.touched {
		if err := w.compareTask(id); err != nil {
			return err
		}
	}
	w.touched = w.touched[:0]
	return nil
}

func (w *world) compareTask(id lease.TaskID) error {
	found, t := w.host.Task(id), w.model.tasks[id.String()]
	gone := t == nil || t.gone
	switch {
	case gone != (found == nil):
		return fmt.Errorf("%v: deleted in the model: %v, in the store: %v", id, gone, found == nil)
	case gone:
		return nil
	}
	if got, want := factsOf(found), w.model.factsOf(t); got != want {
		return fmt.Errorf("%v:\n  the rules say %+v\n  the model says %+v", id, got, want)
	}
	return nil
}

// facts are what rules and model must agree on about a task.
type facts struct {
	state    lease.State
	reason   lease.Reason
	round    uint32
	attempt  uint32
	failures uint32
	losses   uint32
	releases uint32
	unacked  uint32
	parked   bool
	// failure and checkpoint say whether one is stored for the task.
	failure, checkpoint bool

	readyAt, retryAt            lease.Instant
	runAt, finishedAt, deadline lease.Wall
	outcome                     uint32
	cancel                      bool

	expires, ackBy, attemptBy, cancelBy lease.Instant
	session                             string
	acked, started                      bool

	dueServing lease.Instant
	dueWall    lease.Wall

	events    int // those that were dropped included
	lastEvent modelEvent
	kept      int    // number of discarded results that are kept
	lastKept  uint32 // attempt of the newest of them
}

func factsOf(t *lease.Task) facts {
	f := facts{
		state: t.State(), reason: t.Reason, round: t.Round, attempt: t.Attempt(),
		failures: t.Failures, losses: t.Losses, releases: t.Releases, unacked: t.Unacked, parked: t.Parked,
		readyAt: t.ReadyAt, retryAt: t.RetryAt, runAt: t.RunAt, finishedAt: t.FinishedAt, deadline: t.Deadline,
		cancel: t.Cancel != nil, events: int(t.Dropped) + len(t.History), kept: len(t.Discarded),
		failure: t.HasFailure(), checkpoint: t.HasCheckpoint(),
	}
	if t.Outcome != nil {
		f.outcome = t.Outcome.Attempt
	}
	if l := t.Lease; l != nil {
		f.expires, f.ackBy, f.attemptBy, f.cancelBy = l.ExpiresAt, l.AckBy, l.AttemptBy, l.CancelBy
		f.session, f.acked, f.started = l.Session, l.AckedAt != 0, l.StartedAt != 0
		f.events += len(l.Events)
		f.lastEvent = eventOf(l.Events)
	} else {
		f.lastEvent = eventOf(t.History)
	}
	if t.State() != lease.Ready { // in other states ReadyAt has no meaning
		f.readyAt = 0
	}
	if f.kept > 0 {
		f.lastKept = t.Discarded[f.kept-1].Attempt
	}
	f.dueServing, f.dueWall = t.Due()
	return f
}

// eventOf returns the newest of the events, as the model has it.
func eventOf(events []lease.Event) modelEvent {
	if len(events) == 0 {
		return modelEvent{}
	}
	e := &events[len(events)-1]
	return modelEvent{typ: e.Type, attempt: e.Attempt, reason: e.Reason, kind: e.Kind}
}

func (m *model) factsOf(t *modelTask) facts {
	f := facts{
		state: t.state, reason: t.reason, round: t.round, attempt: t.attempts,
		failures: t.failures, losses: t.losses, releases: t.releases, unacked: t.unacked, parked: t.parked,
		readyAt: t.readyAt, retryAt: t.retryAt, runAt: t.runAt, finishedAt: t.finishedAt, deadline: t.deadline,
		outcome: t.outcome, cancel: t.cancelAsked, events: len(t.history), kept: len(t.kept),
		failure: t.failure, checkpoint: t.checkpoint,
	}
	last := t.history
	if l := t.live; l != nil {
		f.expires, f.ackBy, f.attemptBy, f.cancelBy = l.expires, l.ackBy, l.attemptBy, l.cancelBy
		f.session, f.acked, f.started = l.session, l.acked, l.started
		f.events += len(l.events)
		last = l.events
	}
	if len(last) > 0 {
		f.lastEvent = last[len(last)-1]
	}
	if t.state != lease.Ready {
		f.readyAt = 0
	}
	if f.kept > 0 {
		f.lastKept = t.kept[f.kept-1].attempt
	}
	f.dueServing, f.dueWall = m.due(t)
	return f
}
