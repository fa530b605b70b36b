package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// restsFor is how long a session gets no work after it has refused a task for no reason that is known here.
const restsFor = 5 * time.Second

// Refuse takes a lease back whose holder refuses it, as it runs another task of the same concurrency key: in no budget, and without a wait.
// What the worker did not say of itself is learned: from now on its session gets one task of a key at a time. A lease that is not live, or
// not the session's own, stays as it is. Refuse does not wait.
func (e *Engine) Refuse(tenant, session, task, leaseID string) error {
	ticket, genuine := e.rules.Authority.Open(tenant, leaseID)
	if id, ok := lease.ParseTaskID(task); !genuine || !ok || id != ticket.Task {
		return nil
	}
	return e.inbox.insist(tenant, op{run: func() {
		t := e.sessions[session]
		held := e.set.task(ticket.Task)
		if t == nil || e.holders[ticket.Task] != t || held.Lease.Attempt != ticket.Attempt || held.Lease.Epoch != ticket.Epoch {
			return
		}
		t.wants.SingleFlight = true
		if !e.runs(t, held) {
			e.rest(t)
		}
		e.step(e.now, lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked, Detail: "the worker refused it, as it runs another task of the concurrency key",
		})
	}})
}

// runs reports whether a session holds another task of the concurrency key.
func (e *Engine) runs(t *taker, task *lease.Task) bool {
	for id := range t.leases {
		if other := e.set.task(id); id != task.ID && task.Spec.ConcurrencyKey != "" && other.Spec.ConcurrencyKey == task.Spec.ConcurrencyKey {
			return true
		}
	}
	return false
}

// rest keeps work from a session for a while: else it would be handed what it refuses as fast as it can refuse.
func (e *Engine) rest(t *taker) {
	t.rests = true
	time.AfterFunc(restsFor, func() {
		_ = e.inbox.insist(t.wants.Space.Tenant, op{run: func() { // a stopped engine hands out nothing
			t.rests = false
			e.offer(t)
		}})
	})
}
