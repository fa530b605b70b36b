package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// coolDownTime is how long a session gets no work after it has refused a task although the engine knows of no reason.
const coolDownTime = 5 * time.Second

// Refuse takes a lease back because its holder refuses it: it already runs another task of the same concurrency key. The task is READY at once, and
// no budget is touched. From then on the session gets one task of a concurrency key at a time, as if its worker had declared single_flight. A
// lease that is not live, or not the session's own, stays as it is. Refuse does not wait.
func (e *Engine) Refuse(tenant, session, task, leaseID string) error {
	ticket, genuine := e.rules.Authority.Open(tenant, leaseID)
	if id, ok := lease.ParseTaskID(task); !genuine || !ok || id != ticket.Task {
		return nil
	}
	return e.inbox.putAlways(tenant, op{run: func() {
		t := e.sessions[session]
		held := e.set.task(ticket.Task)
		if t == nil || e.holderOf(ticket.Task) != t || held.Lease.Attempt != ticket.Attempt || held.Lease.Epoch != ticket.Epoch {
			return
		}
		t.single, t.wants.SingleFlight = true, true
		e.recountUsage(t)
		if t.used.keys[held.Spec.ConcurrencyKey] < 2 || held.Spec.ConcurrencyKey == "" {
			e.coolDown(t) // the session holds no other task of the key
		}
		e.step(e.now, lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked, Detail: "the worker refused the task because it runs another task with the same concurrency key",
		})
	}})
}

// coolDown gives a session no work for a while. Otherwise it would get the tasks that it refuses again, as fast as it can refuse them.
func (e *Engine) coolDown(t *taker) {
	t.coolingDown = true
	e.setAlarm(e.now.Serving.Add(coolDownTime), func() {
		t.coolingDown = false
		e.offer(t)
	})
}
