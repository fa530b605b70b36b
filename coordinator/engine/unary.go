package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Lease grants waiting tasks. If there are none, it waits for the first one, for at most r.Wait. If ctx ends before the hand-over, the granted
// tasks are requeued at once (W5).
func (e *Engine) Lease(ctx context.Context, r LeaseRequest) ([]Granted, error) {
	t := newTaker(r.Wants, r.Max)
	t.request = r.Request
	got := make(chan []Granted, 1)
	failed := make(chan error, 2) // room for an error of the op that begins the request, and of the op that answers it
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
	err := e.inbox.put(r.Space.Tenant, op{run: func() { e.beginLease(t, r, reply) }, after: fail})
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
			if err := e.inbox.putAlways(r.Space.Tenant, op{run: func() { e.answerCaller(t) }}); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			_ = e.inbox.putAlways(r.Space.Tenant, op{run: func() { e.abandon(t) }}) // if the engine has stopped, the leases expire after its next start
			return nil, context.Cause(ctx)
		}
	}
}

// beginLease begins a unary request.
func (e *Engine) beginLease(t *taker, r LeaseRequest, reply func([]Granted, error)) {
	e.callers[t] = reply
	if e.repeat(t); len(t.granted) > 0 {
		e.served = append(e.served, t)
		return
	}
	e.attend(t)
	if r.Wait == 0 {
		slices.SortStableFunc(t.queues, func(a, b *queue) int { return cmp.Compare(a.granted, b.granted) })
		for _, q := range t.queues {
			for done := false; !done; done = e.matchQueue(q, e.now) {
				e.unpark()
			}
		}
		e.answerCaller(t)
	}
}

// repeat gives a repeated request the live leases that it was granted before. If the earlier call still waits, repeat answers it at once, because the
// caller has given it up and would not receive its leases. Only the new call waits on.
func (e *Engine) repeat(t *taker) {
	if t.request == "" {
		return
	}
	k := t.requestKey()
	if before := e.asking[k]; before != nil {
		e.answerCaller(before)
	}
	e.asking[k] = t
	clear(e.answered[k]) // this call gets these leases, so the earlier call must not give them back if its caller is gone
	for _, id := range e.requests[k] {
		t.granted = append(t.granted, e.granted(e.set.task(id)))
	}
}

func (t *taker) requestKey() requestKey {
	return requestKey{t.wants.Space.Tenant, t.wants.Worker, t.request}
}

// answerCaller answers a unary request with the leases that it has been granted so far.
func (e *Engine) answerCaller(t *taker) {
	reply := e.callers[t]
	if reply == nil { // answered before
		return
	}
	e.doneWaiting(t)
	for id := range t.leases {
		e.unhold(id) // the request ends here, so the end of the lease frees no slot
	}
	if t.request != "" && len(t.leases) > 0 {
		e.answered[t.requestKey()] = t.leases
	}
	granted := t.granted
	e.batch.ops = append(e.batch.ops, op{after: func(err error) { reply(granted, err) }})
}

// doneWaiting removes a unary request from those that wait.
func (e *Engine) doneWaiting(t *taker) {
	delete(e.callers, t)
	if k := t.requestKey(); e.asking[k] == t {
		delete(e.asking, k)
	}
	e.unattend(t, t.queues)
	e.takerLeft(t)
}

// answerCallers answers the unary requests that were granted something.
func (e *Engine) answerCallers() {
	for i, t := range e.served {
		e.answerCaller(t)
		e.served[i] = nil
	}
	e.served = e.served[:0]
}

// abandon requeues the tasks that were granted to a caller who disconnected before the hand-over (W5).
func (e *Engine) abandon(t *taker) {
	if !t.left {
		e.doneWaiting(t)
	}
	for id, attempt := range t.leases {
		if e.holderOf(id) == t { // after the answer, the lease may have ended, and another taker may hold the next one
			e.unhold(id)
		}
		e.step(e.now, lease.Requeue{Task: id, Attempt: attempt, Cause: lease.Revoked, Detail: "the caller disconnected before it received the task"})
	}
}
