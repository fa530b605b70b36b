package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// grantsPerTurn is how many tasks a queue hands out before another one has its turn.
const grantsPerTurn = 64

// stir marks a queue in which a task or a taker may have found its match. Where nothing waits, or nobody, there is none; who comes stirs it again.
func (e *Engine) stir(q *queue) {
	if !q.stirs && q.waiting > 0 && q.hungry.Len() > 0 {
		q.stirs = true
		e.stirred.push(q.space.name.Tenant, turn{q, q.granted})
	}
}

// turn is that of a queue, which is next where its last grant was longest ago. So one that shares its takers with another waits for one turn of it,
// whichever the takers name first and however many tasks wait there (T12).
type turn struct {
	queue *queue
	last  uint64 // number of the last grant when the queue was stirred
}

func newStirred() *lanes[turn] {
	l := newLanes[turn]()
	l.less = func(a, b turn) bool { return a.last < b.last }
	return l
}

// match hands out what the stirred queues hold, by tenant and then by queue in turn (T12), and a task for each taker in turn. What does not
// fit into the batch goes into the next one.
func (e *Engine) match(now lease.Now) {
	for e.nudge(); len(e.batch.changes) < maxBatchChanges; e.nudge() {
		next, ok := e.stirred.pop()
		if !ok {
			return
		}
		q := next.queue
		q.stirs = false
		if !e.matchQueue(q, now) {
			e.stir(q)
		}
	}
}

// matchQueue gives a queue its turn; done is false where the turn was too short.
func (e *Engine) matchQueue(q *queue, now lease.Now) (done bool) {
	grants := 0
	for turn := q.hungry.Front(); turn != nil && q.waiting > 0; {
		if q.state().Blocked(now.Serving) != lease.NoBlock {
			e.throttle(q, now.Serving)
			return true
		}
		t, next := turn.Value.(*taker), turn.Next()
		if t.free() <= 0 {
			t.sit(q)
		} else if l, at := e.best(q, t); l != nil {
			if grants++; grants > grantsPerTurn {
				return false
			}
			e.grantAt(l, at, t, now)
			q.hungry.MoveToBack(turn)
			if next == nil {
				next = turn
			}
		} // else nothing in this queue is for it, and it keeps its place
		turn = next
	}
	return true
}

// tookTurn takes note of a grant: of the turn, and of what the rate limit let through.
func (e *Engine) tookTurn(q *queue, f *flow, now lease.Instant) {
	e.grants++
	q.granted = e.grants
	q.took(f)
	if r := q.settings.Rate; r.PerSecond != 0 {
		q.bucket = r.Take(q.bucket, now)
	}
}

// throttle is when the rate limit of a queue lets the next grant through.
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

// throttle wakes the loop when a queue may grant again. A queue that waits for something else is stirred when that happens.
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
		e.stir(t.queue)
	}
}
