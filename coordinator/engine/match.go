package engine

import (
	"container/list"

	"github.com/lessor-dev/lessor/lease"
)

// grantsPerTurn is how many tasks a queue hands out at most before another one has its turn; it begins no share of a taker that would not fit.
var grantsPerTurn = 64

// triesPerTurn is how many tasks match tries in a round, to be granted or unparked, before other operations have their turn; how many all calls that do not
// wait try; and how many lines alarms move. This bounds work that adds nothing to the batch: a task that is parked in the batch in which it was made is one
// change, and when a head is refilled the batch may be handed over. Looking at many pools counts, too (looksPerTry), and so does passing over tasks for which a
// taker has no room.
var triesPerTurn = maxBatchChanges

// takersPerBatch is to how many calls and sessions match hands out tasks in a batch before it leaves the rest to the next one. After the commit all of them become
// ready at once, and everybody else waits for them (docs/decisions/0031-long-calls-yield.md). The turn in which a queue reaches it goes on. What operations hand
// out, to calls that do not wait or repeat a request, does not count: a flood of these would end all grants.
var takersPerBatch = 64

// handedOut reports whether match has handed out in the present batch as much as it may.
func (e *Engine) handedOut() bool { return e.batch().handedOut >= takersPerBatch }

// markForMatch marks a queue to be matched, because a new task or a taker with room may now find a match. While the queue has no task or no taker,
// there is nothing to match; the next task or taker that comes marks the queue.
func (e *Engine) markForMatch(q *queue) {
	q.news = true
	e.mark(q)
}

// mark marks a queue to be matched in which nothing has changed: its turn has ended early.
func (e *Engine) mark(q *queue) {
	if !q.marked && q.waiting > 0 && q.available.Len() > 0 {
		q.marked = true
		e.toMatch.push(q.space.name.Tenant, turn{q, q.lastGrant})
	}
}

// turn orders the marked queues of a tenant: the queue whose last grant was longest ago is next. So a queue that shares its takers with another
// queue waits for at most one turn of that queue. The order in which the takers name the queues and the number of waiting tasks do not matter (T12).
type turn struct {
	queue *queue
	last  uint64 // number of the last grant when the queue was marked
}

func turnLess(a, b turn) bool { return a.last < b.last }

// mayMatch reports whether there is something for match to do.
func (e *Engine) mayMatch() bool { return e.toMatch.len > 0 || len(e.toUnpark) > 0 }

// mayNotGrant reports whether no task may be granted now, because the disk is spent (docs/decisions/0040-no-grants-on-a-full-disk.md) or the store is gone.
func (e *Engine) mayNotGrant() bool { return e.cfg.DiskSpent() || e.cfg.StoreGone() }

// match grants the tasks of the marked queues: tenants take turns, then the queues of a tenant, then the takers of a queue, each for its share
// (T12). It stops after triesPerTurn tasks, or when the batch has handed out enough; matching continues in the next round (see sleep). While nothing may be
// granted, it leaves the queues marked.
func (e *Engine) match() {
	if e.grantsNone = e.mayMatch() && e.mayNotGrant(); e.grantsNone {
		return
	}
	for end := e.tried + triesPerTurn; e.tried < end && !e.handedOut(); {
		e.unpark()
		next, ok := e.toMatch.pop()
		switch {
		case ok:
		case len(e.toUnpark) > 0:
			continue
		default:
			return
		}
		q := next.queue
		q.marked = false
		before := e.recipients()
		if !e.matchQueue(q) {
			e.mark(q)
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
	grants, end := 0, e.tried+triesPerTurn
	inRow, share := 0, q.share()
	var next *list.Element // after the taker that gets its share
	for element != nil && q.waiting > 0 {
		if e.heldUp(q) {
			return true
		}
		t := element.Value.(*taker)
		if inRow == 0 {
			next = element.Next()
		}
		if t.free() <= 0 {
			t.withdraw(q)
			inRow, element = 0, next
		} else if l, at := e.bestInQueue(q, t); l == nil {
			inRow, element = 0, next // a taker that got nothing keeps its place
		} else {
			if inRow == 0 && grants+share > grantsPerTurn {
				return false
			}
			grants++
			e.grantAt(l, at, t)
			q.available.MoveToBack(element) // with the first task: whatever ends its share early, the others come before it next time
			if inRow++; inRow == share || e.tried >= end {
				inRow = 0
				if next != nil {
					element = next
				}
			}
		}
		if element != nil && e.tried >= end {
			q.next = element
			return false
		}
	}
	if goesOn && q.news { // takers before the one at which this turn began may have a task now
		e.mark(q)
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

// recordGrant records a grant for the order of the queues, the turns of the flows, and the rate limit.
func (e *Engine) recordGrant(q *queue, f *flow) {
	e.grants++
	q.lastGrant = e.grants
	q.takeTurn(f)
	if r := q.settings.Rate; r.PerSecond != 0 {
		q.bucket = r.Take(q.bucket, e.now().Serving)
	}
}

// heldUp reports whether the settings of a queue allow no grant now. What ends that marks the queue; of a rate limit, unthrottle does.
func (e *Engine) heldUp(q *queue) bool {
	block := q.state().Blocked(e.now().Serving)
	if block == lease.BlockedByRate {
		e.throttled.Set(throttle{q.settings.Rate.Next(q.bucket, e.now().Serving), q})
	}
	return block != lease.NoBlock
}

// throttle says when the rate limit of a queue allows the next grant. The loop wakes then.
type throttle struct {
	until lease.Instant
	queue *queue
}

func throttleLess(a, b throttle) bool {
	if a.until != b.until {
		return a.until < b.until
	}
	return a.queue.space.number < b.queue.space.number ||
		a.queue.space.number == b.queue.space.number && a.queue.name < b.queue.name
}

// unthrottle marks the queues whose rate limit allows a grant again.
func (e *Engine) unthrottle() {
	for {
		t, ok := e.throttled.Min()
		if !ok || t.until > e.now().Serving {
			return
		}
		e.throttled.PopMin()
		e.markForMatch(t.queue)
	}
}
