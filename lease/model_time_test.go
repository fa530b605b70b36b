package lease_test

import (
	"strings"

	"github.com/lessor-dev/lessor/lease"
)

// modelTimer is a timer of a task, which is due on the serving clock or on the wall clock.
type modelTimer struct {
	serving lease.Instant
	wall    lease.Wall // used if serving is 0
	fire    func(at lease.Now)
}

// applyDueTimers fires all due timers of a task, the longest due first, each at the time at which
// it was due (A3).
func (m *model) applyDueTimers(t *modelTask) {
	for !t.gone {
		var first *modelTimer
		var longest lease.Instant
		events := m.timers(t)
		for i := range events {
			lag := m.lag(events[i])
			if lag >= 0 && (first == nil || lag > longest) {
				first, longest = &events[i], lag
			}
		}
		if first == nil {
			return
		}
		at := lease.Now{Serving: m.now.Serving, Wall: first.wall}
		if first.serving != 0 {
			at = lease.Now{Serving: first.serving, Wall: m.now.Wall - lease.Wall(longest)}
		}
		first.fire(at)
	}
}

func (m *model) lag(e modelTimer) lease.Instant {
	if e.serving != 0 {
		return m.now.Serving - e.serving
	}
	return lease.Instant(m.now.Wall - e.wall)
}

// timers lists the timers of the task in its present state. Of two that have been due for equally
// long, applyDueTimers fires the first in the list.
func (m *model) timers(t *modelTask) []modelTimer {
	if t.state.Final() {
		return []modelTimer{{wall: t.finishedAt + lease.Wall(t.spec.Retention), fire: func(lease.Now) { m.remove(t) }}}
	}
	var all []modelTimer
	if t.deadline != 0 && !t.cancelAsked {
		all = append(all, modelTimer{wall: t.deadline, fire: func(at lease.Now) {
			if t.live != nil {
				t.end(lease.DeadlineExceeded, at.Wall)
			}
			t.finish(lease.Failed, lease.DeadlineExceeded, at.Wall)
			t.note(lease.EventEnded, lease.DeadlineExceeded)
		}})
	}
	if first := firstExpiry(t.spec); first != 0 && t.live == nil {
		all = append(all, modelTimer{wall: max(first, t.waitingSince), fire: func(at lease.Now) { t.loseResource(at.Wall) }})
	}
	switch {
	case t.live != nil:
		return append(all, m.leaseTimers(t)...)
	case t.state == lease.Scheduled:
		return append(all, modelTimer{serving: t.retryAt, wall: t.runAt, fire: func(at lease.Now) {
			t.ready(at.Serving)
			t.note(lease.EventReady, lease.NoReason)
		}})
	case t.spec.StartTimeout != 0:
		return append(all, modelTimer{serving: t.readyAt + lease.Instant(t.spec.StartTimeout), fire: func(at lease.Now) {
			t.finish(lease.Failed, lease.StartTimeout, at.Wall)
			t.note(lease.EventEnded, lease.StartTimeout)
		}})
	}
	return all
}

// firstExpiry returns when the first of the spec's resources expires; 0 if none does.
func firstExpiry(s *lease.Spec) (first lease.Wall) {
	for _, r := range s.ResourceRefs {
		if r.ExpiresAt != 0 && (first == 0 || r.ExpiresAt < first) {
			first = r.ExpiresAt
		}
	}
	return first
}

// loseResource ends a waiting task, one of whose resources has expired or whose worker is gone
// (W12).
func (t *modelTask) loseResource(at lease.Wall) {
	t.finish(lease.Failed, lease.ResourceGone, at)
	t.note(lease.EventEnded, lease.ResourceGone)
}

func (m *model) leaseTimers(t *modelTask) []modelTimer {
	var all []modelTimer
	l := t.live
	if l.attemptBy != 0 && !t.cancelAsked {
		all = append(all, modelTimer{serving: l.attemptBy, fire: func(at lease.Now) {
			t.end(lease.DeadlineExceeded, at.Wall)
			t.note(lease.EventLeaseEnded, lease.DeadlineExceeded)
			if process, _, _ := strings.Cut(l.session, "-"); l.ackBy != 0 && !l.acked && process != t.unackedBy {
				m.countUnacked(t, l, at)
				return
			}
			t.failure = true
			m.countFailure(t, &lease.Failure{Category: lease.Timeout}, at)
			if t.state == lease.Failed {
				t.reason = lease.DeadlineExceeded
			}
		}})
	}
	if t.cancelAsked {
		all = append(all, modelTimer{serving: l.cancelBy, fire: func(at lease.Now) {
			t.end(lease.CancelTimeout, at.Wall)
			t.note(lease.EventLeaseEnded, lease.CancelTimeout)
			t.finish(lease.Failed, lease.CancelTimeout, at.Wall)
		}})
	}
	if l.ackBy != 0 && !l.acked {
		all = append(all, modelTimer{serving: l.ackBy, fire: func(at lease.Now) { m.endSilent(t, lease.DispatchUnacked, at) }})
	}
	return append(all, modelTimer{serving: l.expires, fire: func(at lease.Now) { m.endSilent(t, lease.LeaseExpired, at) }})
}

// endSilent ends a lease that expired or was never acknowledged, and decides the next state of the
// task (T5, T7, W5).
func (m *model) endSilent(t *modelTask, cause lease.Reason, at lease.Now) {
	l := t.end(cause, at.Wall)
	t.note(lease.EventLeaseEnded, cause)
	switch {
	case t.cancelAsked:
		t.finish(lease.Cancelled, lease.TaskCancelled, at.Wall)
	case !l.acked:
		m.countUnacked(t, l, at)
	default:
		m.countLoss(t, at)
	}
}

// countUnacked counts a grant that was never acknowledged. Several in a row to one worker process
// count once; the sixth ends the task (W5).
func (m *model) countUnacked(t *modelTask, l *modelLease, at lease.Now) {
	process, _, _ := strings.Cut(l.session, "-")
	if process == "" || process != t.unackedBy {
		t.unacked++
		t.unackedBy = process
	}
	if t.unacked >= 6 {
		t.finish(lease.Failed, lease.DispatchUnavailable, at.Wall)
		return
	}
	t.readyAgain(l, at.Serving)
}

// countLoss counts a loss. After the first loss the task is READY at once, after later ones it
// waits, and the last one of the budget ends it (T5).
func (m *model) countLoss(t *modelTask, at lease.Now) {
	t.releases = 0
	t.losses++
	switch {
	case t.losses >= t.policy.MaxLosses:
		t.finish(lease.Failed, lease.HeartbeatTimeout, at.Wall)
	case t.losses == 1:
		t.ready(at.Serving)
	default:
		t.schedule(at.Serving + m.backoff(t, t.losses-2))
	}
}

// due returns when the next timer of the task is due on each clock; 0 is never.
func (m *model) due(t *modelTask) (serving lease.Instant, wall lease.Wall) {
	for _, e := range m.timers(t) {
		if e.serving != 0 && (serving == 0 || e.serving < serving) {
			serving = e.serving
		}
		if e.serving == 0 && (wall == 0 || e.wall < wall) {
			wall = e.wall
		}
	}
	return serving, wall
}
