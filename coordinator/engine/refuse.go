package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// restsFor is how long a session gets no work after it has refused a task although the engine knows of no reason.
const restsFor = 5 * time.Second

// Refuse takes a lease back because its holder refuses it: it already runs another task of the same concurrency key. The task is READY at once, and
// no budget is touched. From then on the session gets one task of a concurrency key at a time, as if its worker had declared single_flight. A
// lease that is not live, or not the session's own, stays as it is. Refuse does not wait.
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
			e.rest(t) // the session holds no other task of the key
		}
		e.step(e.now, lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked, Detail: "the worker refused the task because it runs another task with the same concurrency key",
		})
	}})
}

// rest gives a session no work for a while. Otherwise it would get the tasks that it refuses again, as fast as it can refuse them.
func (e *Engine) rest(t *taker) {
	t.rests = true
	e.alarm(e.now.Serving.Add(restsFor), func() {
		t.rests = false
		e.offer(t)
	})
}
