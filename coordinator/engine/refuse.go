package engine

import (
	"errors"
	"maps"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

const (
	// refusedFor is how long a session gets no tasks of a concurrency key after it has refused one
	// for a reason that the engine does not see. Each further refusal in a row doubles that, up to
	// refusedMost.
	refusedFor  = 5 * time.Second
	refusedMost = time.Minute
	// maxRefused is how many keys may have such a pause until the session gets no work at all.
	maxRefused = 64
)

// Why a lease is not taken back from a worker that refuses its task.
var (
	ErrNoKey   = errors.New("the task has no concurrency key")
	errNotHeld = errors.New("the session holds no such lease of the task")
)

// Refuse takes a lease back that its holder refuses because it already runs another task of the
// same concurrency key. The task is READY at once, and the refusal uses up no budget. From then on
// the session gets one task of a concurrency key at a time, as if its worker had declared
// single_flight. If the lease has ended, nothing changes, and err is nil: the worker is rid of it.
// Otherwise, if nothing changes, err is ErrNoKey or says why. Refuse returns when the batch is
// durable, so that a stream cannot flood the loop with refusals.
func (e *Engine) Refuse(tenant, session, task, leaseID string) (err error) {
	ticket, genuine := e.rules.Authority.Open(tenant, leaseID)
	if id, ok := lease.ParseTaskID(task); !genuine || !ok || id != ticket.Task {
		return errNotHeld
	}
	e.inbox.settle(tenant, func() {
		held := e.set.leased(ticket.Task)
		if held == nil || held.Lease.Attempt != ticket.Attempt || held.Lease.Epoch != ticket.Epoch {
			return
		}
		t := e.sessions.find(session)
		switch {
		case t == nil || e.set.holderOf(ticket.Task) != t:
			err = errNotHeld
			return
		case held.Spec.ConcurrencyKey == "":
			err = ErrNoKey
			return
		}
		t.forcedSingle, t.wants.SingleFlight = true, true
		e.recountUsage(t)
		if t.used.keys[held.Spec.ConcurrencyKey] < 2 {
			// the engine sees no reason: the session holds no other task of the key
			e.avoid(t, held.Spec.ConcurrencyKey)
		}
		e.step(lease.Requeue{
			Task: ticket.Task, Attempt: ticket.Attempt, Cause: lease.Revoked,
			Detail: "the worker refused the task because it runs another task with the same concurrency key",
		})
	})
	return err
}

// refusedKeys are concurrency keys of which a session refused a task although it holds no other
// one, as far as the engine knows. Without the pauses the session would get the refused task again
// at once, and refuse it again, in a loop that fills the history of the task.
type refusedKeys struct {
	keys   map[string]*refusedKey
	paused int // how many keys have a pause that is not over
}

// refusedKey is a key with the last of the pauses in which the session gets no task of it.
type refusedKey struct {
	pause time.Duration
	end   *alarm // nil: the pause is over
}

func (r *refusedKeys) has(key string) bool {
	k := r.keys[key]
	return k != nil && k.end != nil
}

// tooMany reports whether the session gets no work at all, because it has refused every key that it
// was offered.
func (r *refusedKeys) tooMany() bool { return r.paused >= maxRefused }

// obtain returns the entry of a key. It forgets the pauses that are over if there are many: the
// session may refuse other keys all the time.
func (r *refusedKeys) obtain(key string) *refusedKey {
	if len(r.keys)-r.paused >= maxRefused {
		maps.DeleteFunc(r.keys, func(other string, k *refusedKey) bool { return k.end == nil && other != key })
	}
	if r.keys == nil {
		r.keys = map[string]*refusedKey{}
	}
	if r.keys[key] == nil {
		r.keys[key] = &refusedKey{}
	}
	return r.keys[key]
}

// took makes the next pause of a key short again: the session has had a task of it that it did not
// refuse.
func (r *refusedKeys) took(key string) {
	if !r.has(key) {
		delete(r.keys, key)
	}
}

// stop cancels all alarms.
func (r *refusedKeys) stop(alarms *alarms) {
	for _, k := range r.keys {
		alarms.stop(k.end)
	}
}

// avoid gives a session no task of a key for a while, which is longer each time.
func (e *Engine) avoid(t *taker, key string) {
	k := t.refused.obtain(key)
	if k.end != nil {
		return
	}
	k.pause = min(max(2*k.pause, refusedFor), refusedMost)
	t.refused.paused++
	k.end = e.alarms.in(k.pause, func() {
		k.end = nil
		t.refused.paused--
		e.agenda.offer(t)
	})
}
