package engine

import (
	"errors"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

const (
	// refusedFor is how long a session gets no tasks of a concurrency key after it has refused one for a reason that the engine does not see.
	refusedFor = 5 * time.Second
	// maxRefused is how many keys a session may refuse in this time until it gets no work at all.
	maxRefused = 64
)

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
			e.avoid(t, held.Spec.ConcurrencyKey) // the engine sees no reason: the session holds no other task of the key
		}
		e.step(lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked, Detail: "the worker refused the task because it runs another task with the same concurrency key",
		})
	})
	return err
}

// refusedKeys are concurrency keys of which a session refused a task although it holds no other one, as far as the engine knows. Without them the session would get
// the refused task again at once, and refuse it again, in a loop.
type refusedKeys struct {
	keys map[string]struct{}
	end  *alarm // when all are forgotten
}

func (r *refusedKeys) has(key string) bool {
	_, found := r.keys[key]
	return found
}

// tooMany reports whether the session gets no work at all, because it has refused every key that it was offered.
func (r *refusedKeys) tooMany() bool { return len(r.keys) >= maxRefused }

// avoid gives a session no task of a key for a while, which begins with the first key that it refuses.
func (e *Engine) avoid(t *taker, key string) {
	r := &t.refused
	if r.keys == nil {
		r.keys = map[string]struct{}{}
		r.end = e.alarms.in(refusedFor, func() {
			*r = refusedKeys{}
			e.agenda.offer(t)
		})
	}
	r.keys[key] = struct{}{}
}
