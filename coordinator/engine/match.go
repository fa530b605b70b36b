package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// grantsPerTurn is how many tasks a queue hands out before another one has its turn.
var grantsPerTurn = 64

// markForMatch marks a queue to be matched, because a new task or a taker with room may now find a match. While the queue has no task or no taker,
// there is nothing to match; the next task or taker that comes marks the queue.
func (e *Engine) markForMatch(q *queue) {
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

func newToMatch() *lanes[turn] {
	l := newLanes[turn]()
	l.less = func(a, b turn) bool { return a.last < b.last }
	return l
}

// match grants the tasks of the marked queues: tenants take turns, then the queues of a tenant, then the takers of a queue, each for one task
// (T12). It stops when the batch has enough changes; matching continues in the next batch.
func (e *Engine) match(now lease.Now) {
	for e.unpark(); len(e.batch.changes) < maxBatchChanges; e.unpark() {
		next, ok := e.toMatch.pop()
		if !ok {
			return
		}
		q := next.queue
		q.marked = false
		if !e.matchQueue(q, now) {
			e.markForMatch(q)
		}
	}
}

// matchQueue gives a queue its turn. done is false if the turn ended while the queue may still have tasks that can be granted.
func (e *Engine) matchQueue(q *queue, now lease.Now) (done bool) {
	grants := 0
	for turn := q.available.Front(); turn != nil && q.waiting > 0; {
		if q.state().Blocked(now.Serving) != lease.NoBlock {
			e.throttle(q, now.Serving)
			return true
		}
		t, next := turn.Value.(*taker), turn.Next()
		if t.free() <= 0 {
			t.withdraw(q)
		} else if l, at := e.bestInQueue(q, t); l != nil {
			if grants++; grants > grantsPerTurn {
				return false
			}
			e.grantAt(l, at, t, now)
			q.available.MoveToBack(turn)
			if next == nil {
				next = turn
			}
		} // else the queue has no task for the taker, and the taker keeps its place
		turn = next
	}
	return true
}

// recordGrant records a grant for the order of the queues, the turns of the flows, and the rate limit.
func (e *Engine) recordGrant(q *queue, f *flow, now lease.Instant) {
	e.grants++
	q.lastGrant = e.grants
	q.takeTurn(f)
	if r := q.settings.Rate; r.PerSecond != 0 {
		q.bucket = r.Take(q.bucket, now)
	}
}

// throttle says when the rate limit of a queue allows the next grant.
type throttle struct {
	until lease.Instant
	queue *queue
}

func newThrottled() *btree.BTreeG[throttle] {
	return btree.NewBTreeGOptions(func(a, b throttle) bool {
		if a.until != b.until {
			return a.until < b.until
		}
		return a.queue.space.number < b.queue.space.number ||
			a.queue.space.number == b.queue.space.number && a.queue.name < b.queue.name
	}, btree.Options{NoLocks: true})
}

// throttle makes the loop wake when the rate limit of a queue allows a grant again. If something else blocks the queue, the change that ends the
// block marks the queue.
func (e *Engine) throttle(q *queue, now lease.Instant) {
	if q.state().Blocked(now) == lease.BlockedByRate {
		e.throttled.Set(throttle{q.settings.Rate.Next(q.bucket, now), q})
	}
}

func (e *Engine) unthrottle() {
	for {
		t, ok := e.throttled.Min()
		if !ok || t.until > e.now.Serving {
			return
		}
		e.throttled.PopMin()
		e.markForMatch(t.queue)
	}
}
