package engine

import (
	"context"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Lease grants waiting tasks to a unary caller; see Calls.
func (e *Engine) Lease(ctx context.Context, r LeaseRequest) ([]Granted, error) {
	t := newTaker(r.Wants, r.Max)
	t.request = r.Request
	got := make(chan []Granted, 1)
	failed := make(chan error, 2) // what began it, and what answers it
	fail := func(err error) {
		if err != nil {
			failed <- err
		}
	}
	reply := func(g []Granted, err error) {
		if err == nil {
			got <- g
		}
		fail(err)
	}
	err := e.inbox.put(r.Space.Tenant, op{run: func() { e.call(t, r, reply) }, after: fail})
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(r.Wait)
	defer patience.Stop()
	for {
		select {
		case granted := <-got:
			return granted, nil
		case err := <-failed:
			return nil, err
		case <-patience.C:
			if err := e.inbox.insist(r.Space.Tenant, op{run: func() { e.hangUp(t) }}); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			_ = e.inbox.insist(r.Space.Tenant, op{run: func() { e.abandon(t) }}) // a stopped engine requeues by expiry
			return nil, context.Cause(ctx)
		}
	}
}

// call begins a unary request. A repeat of one whose leases are live gets the same again.
func (e *Engine) call(t *taker, r LeaseRequest, reply func([]Granted, error)) {
	e.callers[t] = reply
	for _, id := range e.requests[requestKey{r.Space.Tenant, r.Worker, r.Request}] {
		t.granted = append(t.granted, e.granted(e.set.task(id)))
	}
	if len(t.granted) > 0 {
		e.served = append(e.served, t)
		return
	}
	e.attend(t)
	if r.Wait == 0 {
		for _, q := range t.queues {
			for done := false; !done; done = e.matchQueue(q, e.now) {
				e.nudge()
			}
		}
		e.hangUp(t)
	}
}

// hangUp answers a unary request with what it has.
func (e *Engine) hangUp(t *taker) {
	reply := e.callers[t]
	if reply == nil { // answered before
		return
	}
	delete(e.callers, t)
	e.unattend(t, t.queues)
	e.vanish(t)
	for id := range t.leases {
		e.unhold(id) // a slot of a request is not given back to it
	}
	granted := t.granted
	e.batch.ops = append(e.batch.ops, op{after: func(err error) { reply(granted, err) }})
}

// answerCallers answers the unary requests that have got something.
func (e *Engine) answerCallers() {
	for i, t := range e.served {
		e.hangUp(t)
		e.served[i] = nil
	}
	e.served = e.served[:0]
}

// abandon takes back what was granted to a caller who is gone before the hand-over (W5).
func (e *Engine) abandon(t *taker) {
	if !t.left {
		delete(e.callers, t)
		e.unattend(t, t.queues)
		e.vanish(t)
	}
	for id, attempt := range t.leases {
		e.unhold(id)
		e.step(e.now, lease.Requeue{Task: id, Attempt: attempt, Cause: lease.Revoked, Detail: "the caller was gone before the hand-over"})
	}
}
