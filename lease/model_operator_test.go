package lease_test

import "github.com/lessor-dev/lessor/lease"

// Why a command of a producer or an operator is refused, and what a command returns that changes
// nothing.
const (
	refusedNotFound = "not found"
	refusedState    = "wrong state"
	refusedField    = "bad field"
	refusedExists   = "exists"

	noEffect = "no effect"
)

func (m *model) cancel(tenant, id, reason string) (outcome string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return refusedNotFound
	case t.state == lease.Completed || t.state == lease.Failed:
		return refusedState
	case t.cancelAsked: // answered like the first cancel (T7)
		return "asked again"
	}
	t.cancelAsked, t.cancelReason = true, reason
	t.note(lease.EventCancelRequested, lease.TaskCancelled)
	if t.live == nil {
		t.finish(lease.Cancelled, lease.TaskCancelled, m.now.Wall)
		return "cancelled"
	}
	t.state = lease.Cancelling
	t.live.cancelBy = m.now.Serving + lease.Instant(t.spec.CancelGrace)
	return "asked"
}

func (m *model) retry(tenant, id string, deadline lease.Wall) (outcome string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return refusedNotFound
	case t.state != lease.Failed && t.state != lease.Cancelled:
		return refusedState
	}
	if deadline == 0 {
		deadline = t.deadline
	}
	if deadline != 0 && deadline <= m.now.Wall {
		return refusedField
	}
	if first := firstExpiry(t.spec); first != 0 && first <= m.now.Wall {
		return refusedField
	}
	t.deadline = deadline
	t.round++
	t.failures, t.losses, t.releases, t.unacked, t.unackedBy = 0, 0, 0, 0, ""
	t.cancelAsked, t.cancelReason, t.reason, t.outcome, t.finishedAt = false, "", lease.NoReason, 0, 0
	t.ready(m.now.Serving)
	t.note(lease.EventRetried, lease.NoReason)
	return "retried"
}

func (m *model) delete(tenant, id string, force bool) (outcome string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return refusedNotFound
	case t.live != nil && !force:
		return refusedState
	}
	held := t.live != nil
	m.remove(t)
	if held {
		return "deleted by force"
	}
	return "deleted"
}

func (m *model) remove(t *modelTask) {
	if t.live != nil {
		t.end(lease.Revoked, m.now.Wall)
	}
	t.gone = true
	t.forgetAt = m.now.Serving + lease.Instant(lease.LedgerAfterDelete)
}

// adopt makes a kept result, which came too late, the outcome of the round (V15).
func (m *model) adopt(tenant, id string, attempt uint32) (result *lease.Result, outcome string) {
	t := m.task(tenant, id)
	switch {
	case t == nil:
		return nil, refusedNotFound
	case t.live != nil, t.outcome != 0, len(t.kept) == 0:
		return nil, refusedState
	case attempt == 0:
		attempt = t.kept[len(t.kept)-1].attempt
	}
	for _, k := range t.kept {
		if k.attempt == attempt {
			t.finish(lease.Completed, lease.NoReason, m.now.Wall)
			t.outcome = attempt
			t.record(modelEvent{typ: lease.EventAdopted, attempt: attempt, reason: lease.None})
			return k.result, "adopted"
		}
	}
	return nil, refusedState
}
