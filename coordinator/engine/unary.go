package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Lease grants waiting tasks. If there are none, it waits for the first one, for at most r.Wait. If
// ctx ends before they are delivered, or that fails, the granted tasks are requeued at once (W5).
// If ctx ends before the call has its turn, nothing is granted.
func (e *Engine) Lease(ctx context.Context, r LeaseRequest) ([]Granted, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	type answer struct {
		granted []Granted
		err     error
	}
	answers := make(chan answer, 1)
	t := newTaker(r.Wants, r.Max)
	t.call = unaryCall{request: r.Request, reply: func(g []Granted, err error) {
		if err != nil {
			g = nil // whether they are durable is unknown
		}
		select {
		case answers <- answer{g, err}:
		default: // the caller has an answer: an op of the call has failed, too
		}
	}}
	wait := r.Wait > 0
	begin := &question[struct{}]{fn: func() (none struct{}, _ error) { e.beginLease(t, wait); return none, nil }}
	if err := e.inbox.put(r.Space.Tenant, t.op(begin.run)); err != nil {
		return nil, err
	}
	// if the engine has stopped, the leases expire after its next start
	abandon := func() { e.inbox.later(r.Space.Tenant, func() { e.abandon(t) }) }
	// of a call that does not wait: never; poll answers it
	var patience <-chan time.Time
	if wait {
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		patience = timer.C
	}
	for {
		select {
		case a := <-answers:
			if len(a.granted) > 0 && r.Deliver != nil {
				if err := r.Deliver(a.granted); err != nil {
					abandon()
					return nil, err
				}
			}
			return a.granted, a.err
		case <-patience:
			if err := e.inbox.put(r.Space.Tenant, op{must: true, run: func() { e.answerCaller(t) }}); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			t.call.left.Store(true)
			if !begin.abandon() {
				abandon()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// beginLease begins a call of a unary request. A repeat gets the live leases that the calls before
// were granted. If one of them still waits, it is answered at once: its caller has given it up and
// would not receive its leases.
func (e *Engine) beginLease(t *taker, wait bool) {
	before, leases := e.requests.begin(t)
	if before != nil {
		e.answerCaller(before)
		clear(before.leases)
	}
	for _, id := range e.stillLive(leases) {
		t.call.granted = append(t.call.granted, e.newGranted(e.set.task(id)))
	}
	if len(t.call.granted) > 0 {
		e.requests.answerSoon(t)
		return
	}
	e.attend(t)
	if !wait {
		e.poll(t)
	}
}

// stillLive applies the due timers of leased tasks (A3) and returns those tasks whose leases have
// not ended by that. The end of a lease also removes the task from leases, so it works on a copy.
func (e *Engine) stillLive(leases []lease.TaskID) []lease.TaskID {
	return slices.DeleteFunc(slices.Clone(leases), func(id lease.TaskID) bool {
		e.step(lease.Expire{Task: id})
		return e.set.leased(id) == nil
	})
}

// poll answers a call that does not wait with what its queues have for it now. If many tasks must
// be parked before there is one for it, poll goes on when other operations have had their turn.
func (e *Engine) poll(t *taker) {
	switch {
	case t.gone || t.call.left.Load(): // it was answered meanwhile, or is abandoned
	case e.matchNow(t) || len(t.call.granted) > 0:
		e.answerCaller(t)
	default:
		again := t.op(func() { e.poll(t) })
		again.must = true
		_ = e.inbox.put(t.wants.Space.Tenant, again) // only the loop closes the inbox, and it runs nothing afterwards
	}
}

// op returns an op of a call that has no answer yet. If it is unknown whether the changes of the op
// are durable, or the engine stops before the op runs, that is the answer.
func (t *taker) op(run func()) op {
	reply := t.call.reply
	return op{run: run, after: func(err error) {
		if err != nil {
			reply(nil, err)
		}
	}}
}

// matchNow matches the queues of a call that does not wait. The queue whose last grant was longest
// ago comes first. It returns false if all such calls have tried triesPerTurn tasks in this round.
// Like match, it grants nothing while nothing may be granted.
func (e *Engine) matchNow(t *taker) (done bool) {
	if e.mayNotGrant() {
		return true
	}
	slices.SortStableFunc(t.queues, func(a, b *queue) int { return cmp.Compare(a.lastGrant, b.lastGrant) })
	for _, q := range t.queues {
		for done := false; !done; {
			// only while there is something to try
			if e.effort.pollsDone() && (q.waiting.Len() > 0 || e.parking.hasWork()) {
				return false
			}
			e.unpark()
			done = e.matchQueue(q) && !e.parking.hasWork()
		}
	}
	return true
}

// answerCaller answers a call with the leases that it has been granted so far. It does nothing if
// the call no longer waits.
func (e *Engine) answerCaller(t *taker) {
	if t.gone {
		return
	}
	e.doneWaiting(t)
	for id := range t.leases {
		e.set.hold(id, nil) // the call ends here, so the end of the lease frees no slot
	}
	granted, reply := t.call.granted, t.call.reply
	// Its request keeps the call for as long as a lease of the request is live, but not these
	// versions of the tasks.
	t.call.granted, t.call.reply = nil, nil
	e.batch().addOp(op{after: func(err error) { reply(granted, err) }})
}

// doneWaiting removes a call from those that wait.
func (e *Engine) doneWaiting(t *taker) {
	e.unattend(t, t.queues)
	e.workers.left(t)
	e.requests.prune(t.requestKey())
}

// abandon ends a call whose caller has disconnected before the delivery, and requeues what the call
// was granted (W5).
func (e *Engine) abandon(t *taker) {
	if !t.gone { // if it was granted something, that was in this round, and it was not answered yet
		e.doneWaiting(t)
	}
	e.requeue(t.leases, "the caller disconnected before it received the task")
}
