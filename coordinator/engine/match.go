package engine

import (
	"cmp"
	"container/list"
)

// grantsPerTurn is how many tasks a queue hands out at most before another one has its turn; it
// begins no share of a taker that would not fit.
var grantsPerTurn = 64

// takersPerBatch is to how many calls and sessions match hands out tasks in a batch before it
// leaves the rest to the next one. After the commit all of them become ready at once, and everybody
// else waits for them (docs/decisions/0031-long-calls-yield.md). The turn in which a queue reaches
// it goes on. What operations hand out, to calls that do not wait or repeat a request, does not
// count: a flood of these would end all grants.
var takersPerBatch = 64

// handedOut reports whether match has handed out in the present batch as much as it may.
func (e *Engine) handedOut() bool { return e.batch().handedOut >= takersPerBatch }

// mayMatch reports whether there is something for match to do.
func (e *Engine) mayMatch() bool { return !e.agenda.empty() || e.parking.hasWork() }

// mayNotGrant reports whether no task may be granted now, because the disk is spent
// (docs/decisions/0040-no-grants-on-a-full-disk.md) or the store is gone.
func (e *Engine) mayNotGrant() bool { return e.cfg.DiskSpent() || e.cfg.StoreGone() }

// match grants the tasks of the marked queues: tenants take turns, then the queues of a tenant,
// then the takers of a queue, each for its share (T12). It stops after triesPerTurn tasks, or when
// the batch has handed out enough; matching continues in the next round (see sleep). While nothing
// may be granted, it leaves the queues marked.
func (e *Engine) match() {
	if e.grantsNone = e.mayMatch() && e.mayNotGrant(); e.grantsNone {
		return
	}
	for end := e.effort.after(triesPerTurn); !e.effort.reached(end) && !e.handedOut(); {
		e.unpark()
		q := e.agenda.next()
		switch {
		case q != nil:
		case e.parking.hasWork():
			continue
		default:
			return
		}
		before := e.recipients()
		if !e.matchQueue(q) {
			e.agenda.resume(q)
		}
		e.batch().handedOut += max(0, e.recipients()-before) // below 0 if the batch was handed over meanwhile
	}
}

// recipients returns how many calls and sessions get something from the present batch.
func (e *Engine) recipients() int { return e.requests.answering() + len(e.batch().deliveries) }

// matchQueue gives a queue its turn. done is false if the turn ended while the queue may still have
// tasks that can be granted. It ends after triesPerTurn tries, even if they have found nothing:
// there may be many takers, and many pools of which each taker meets none.
func (e *Engine) matchQueue(q *queue) (done bool) {
	turn, end := beginTurn(q), e.effort.after(triesPerTurn)
	for turn.at != nil && q.waiting.Len() > 0 {
		if e.agenda.heldUp(q, e.now().Serving) {
			return true
		}
		t := turn.taker()
		if t.free() <= 0 {
			t.withdraw(q)
			turn.pass()
		} else if l, at := e.search.best(q, t); l == nil || e.makeRoom(t, l, at) {
			turn.pass() // a taker that got nothing keeps its place
		} else if turn.usedUp() {
			return false
		} else {
			e.grantAt(l, at, t)
			turn.granted(e.effort.reached(end))
		}
		if turn.at != nil && e.effort.reached(end) {
			q.goOnAt = turn.at
			return false
		}
	}
	if turn.goesOn && q.news { // takers before the one at which this turn began may have a task now
		e.agenda.resume(q)
	}
	return true
}

// queueTurn is the turn of a queue: its takers get their shares one after another, in the order in
// which they are available.
type queueTurn struct {
	queue  *queue
	goesOn bool // it began at queue.goOnAt, so perhaps not at the first taker
	share  int  // how many tasks each taker gets in a row
	grants int  // to all of them

	// moveTo sets these.
	at    *list.Element // the taker whose share it is; nil after the last one
	next  *list.Element // the taker after it; at itself is the last one as soon as it has got a task
	inRow int           // how many tasks it has got
}

// taker returns the taker whose share it is.
func (t *queueTurn) taker() *taker { return t.at.Value.(*taker) }

// beginTurn begins the turn of a queue: at the taker at which the last one ended early, or else at
// the first one.
func beginTurn(q *queue) queueTurn {
	t := queueTurn{queue: q, goesOn: q.goOnAt != nil, share: q.share()}
	if t.goesOn {
		t.moveTo(q.goOnAt)
	} else {
		t.moveTo(q.available.Front())
		q.news = false
	}
	q.goOnAt = nil
	return t
}

func (t *queueTurn) moveTo(at *list.Element) {
	t.at, t.next, t.inRow = at, nil, 0
	if at != nil {
		t.next = at.Next()
	}
}

// pass goes on to the next taker.
func (t *queueTurn) pass() { t.moveTo(t.next) }

// granted notes a task for the present taker, and goes on to the next one if its share, or the
// turn, is over. A taker that is alone gets one share after another.
func (t *queueTurn) granted(last bool) {
	t.grants++
	t.inRow++
	// with the first task: whatever ends its share early, the others come before it next time
	t.queue.available.MoveToBack(t.at)
	if t.inRow == t.share || last {
		t.moveTo(cmp.Or(t.next, t.at))
	}
}

// usedUp reports whether there is no room in the turn for the share that would begin now.
func (t *queueTurn) usedUp() bool { return t.inRow == 0 && t.grants+t.share > grantsPerTurn }

// maxShare is how many tasks of a queue a taker gets in a row at most.
const maxShare = 16

// share returns how many tasks a taker gets in a row: what each would get if all had room for it.
// Where many calls wait for many tasks, each takes several with it, and need not come back after
// one.
func (q *queue) share() int {
	tasks := q.counts[countReady] - q.parked
	return int(min(max(tasks/uint64(max(q.available.Len(), 1)), 1), maxShare, uint64(grantsPerTurn)))
}
