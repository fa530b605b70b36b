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
		if t == nil || e.holderOf(ticket.Task) != t || held.Lease.Attempt != ticket.Attempt || held.Lease.Epoch != ticket.Epoch {
			return
		}
		t.single, t.wants.SingleFlight = true, true
		e.reckon(t)
		if t.room.keys[held.Spec.ConcurrencyKey] < 2 || held.Spec.ConcurrencyKey == "" {
			e.rest(t) // it holds no other task of the key
		}
		e.step(e.now, lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked, Detail: "the worker refused it, as it runs another task of the concurrency key",
		})
	}})
}

// rest keeps work from a session for a while: else it would be handed what it refuses as fast as it can refuse.
func (e *Engine) rest(t *taker) {
	t.rests = true
	e.alarm(e.now.Serving.Add(restsFor), func() {
		t.rests = false
		e.offer(t)
	})
}
