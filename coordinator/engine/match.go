package engine

import "container/list"

// grantsPerTurn is how many tasks a queue hands out at most before another one has its turn; it begins no share of a taker that would not fit.
var grantsPerTurn = 64

// takersPerBatch is to how many calls and sessions match hands out tasks in a batch before it leaves the rest to the next one. After the commit all of them become
// ready at once, and everybody else waits for them (docs/decisions/0031-long-calls-yield.md). The turn in which a queue reaches it goes on. What operations hand
// out, to calls that do not wait or repeat a request, does not count: a flood of these would end all grants.
var takersPerBatch = 64

// handedOut reports whether match has handed out in the present batch as much as it may.
func (e *Engine) handedOut() bool { return e.batch().handedOut >= takersPerBatch }

// mayMatch reports whether there is something for match to do.
func (e *Engine) mayMatch() bool { return !e.agenda.empty() || e.parking.hasWork() }

// mayNotGrant reports whether no task may be granted now, because the disk is spent (docs/decisions/0040-no-grants-on-a-full-disk.md) or the store is gone.
func (e *Engine) mayNotGrant() bool { return e.cfg.DiskSpent() || e.cfg.StoreGone() }

// match grants the tasks of the marked queues: tenants take turns, then the queues of a tenant, then the takers of a queue, each for its share
// (T12). It stops after triesPerTurn tasks, or when the batch has handed out enough; matching continues in the next round (see sleep). While nothing may be
// granted, it leaves the queues marked.
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

// matchQueue gives a queue its turn. done is false if the turn ended while the queue may still have tasks that can be granted. It ends after triesPerTurn
// tries, even if they have found nothing: there may be many takers, and many pools of which each taker meets none.
func (e *Engine) matchQueue(q *queue) (done bool) {
	element, goesOn := q.next, q.next != nil
	if !goesOn {
		element, q.news = q.available.Front(), false
	}
	q.next = nil
	grants, end := 0, e.effort.after(triesPerTurn)
	inRow, share := 0, q.share()
	var next *list.Element // after the taker that gets its share
	for element != nil && q.waiting > 0 {
		if e.agenda.heldUp(q, e.now().Serving) {
			return true
		}
		t := element.Value.(*taker)
		if inRow == 0 {
			next = element.Next()
		}
		if t.free() <= 0 {
			t.withdraw(q)
			inRow, element = 0, next
		} else if l, at := e.search.best(q, t); l == nil {
			inRow, element = 0, next // a taker that got nothing keeps its place
		} else {
			if inRow == 0 && grants+share > grantsPerTurn {
				return false
			}
			grants++
			e.grantAt(l, at, t)
			q.available.MoveToBack(element) // with the first task: whatever ends its share early, the others come before it next time
			if inRow++; inRow == share || e.effort.reached(end) {
				inRow = 0
				if next != nil {
					element = next
				}
			}
		}
		if element != nil && e.effort.reached(end) {
			q.next = element
			return false
		}
	}
	if goesOn && q.news { // takers before the one at which this turn began may have a task now
		e.agenda.resume(q)
	}
	return true
}

// maxShare is how many tasks of a queue a taker gets in a row at most.
const maxShare = 16

// share returns how many tasks a taker gets in a row: what each would get if all had room for it. Where many calls wait for many tasks, each takes several with
// it, and need not come back after one.
func (q *queue) share() int {
	tasks := q.counts[countReady] - q.parked
	return int(min(max(tasks/uint64(max(q.available.Len(), 1)), 1), maxShare, uint64(grantsPerTurn)))
}
