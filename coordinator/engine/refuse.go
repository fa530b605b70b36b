package engine

import (
	"errors"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// coolDownTime is how long a session gets no work after it has refused a task for a reason that the engine does not see.
const coolDownTime = 5 * time.Second

// Why a lease is not taken back from a worker that refuses its task.
var (
	ErrNotHeld = errors.New("the session holds no such lease of the task")
	ErrNoKey   = errors.New("the task has no concurrency key")
)

// Refuse takes a lease back that its holder refuses because it already runs another task of the same concurrency key. The task is READY at once, and the
// refusal uses up no budget. From then on the session gets one task of a concurrency key at a time, as if its worker had declared single_flight. If the
// lease has ended, nothing changes, and err is nil: the worker is rid of it. Otherwise err is ErrNotHeld or ErrNoKey if nothing changes. Refuse
// returns when the batch is durable, so that a stream cannot flood the loop with refusals.
func (e *Engine) Refuse(tenant, session, task, leaseID string) (err error) {
	ticket, genuine := e.rules.Authority.Open(tenant, leaseID)
	if id, ok := lease.ParseTaskID(task); !genuine || !ok || id != ticket.Task {
		return ErrNotHeld
	}
	e.inbox.settle(tenant, func() {
		held := e.set.leased(ticket.Task)
		if held == nil || held.Lease.Attempt != ticket.Attempt || held.Lease.Epoch != ticket.Epoch {
			return
		}
		t := e.sessions.find(session)
		switch {
		case t == nil || e.set.holderOf(ticket.Task) != t:
			err = ErrNotHeld
			return
		case held.Spec.ConcurrencyKey == "":
			err = ErrNoKey
			return
		}
		t.forcedSingle, t.wants.SingleFlight = true, true
		e.recountUsage(t)
		if t.used.keys[held.Spec.ConcurrencyKey] < 2 {
			e.coolDown(t) // the engine sees no reason: the session holds no other task of the key
		}
		e.step(lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked, Detail: "the worker refused the task because it runs another task with the same concurrency key",
		})
	})
	return err
}

// coolDown gives a session no work for coolDownTime. Otherwise the session would get the refused task again at once, and refuse it again, in a loop.
func (e *Engine) coolDown(t *taker) {
	e.alarms.stop(t.coolingDown)
	t.coolingDown = e.alarms.in(coolDownTime, func() {
		t.coolingDown = nil
		e.agenda.offer(t)
	})
}
