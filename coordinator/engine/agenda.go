package engine

import (
	"time"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
)

// agenda has the queues that are to be matched, and those that wait for their rate limit. Tenants
// take turns, and then the queues of a tenant (T12). It belongs to the loop.
type agenda struct {
	queues    *lanes[markedQueue] // by tenant
	throttled ordered.Set[throttle]
	grants    uint64 // number of grants since the start
}

func newAgenda() *agenda {
	return &agenda{queues: newLanes(markedLess), throttled: ordered.NewSet(throttleLess)}
}

// markedQueue is a queue that waits for its turn, see queueTurn. Of those of a tenant, the one
// whose last grant was longest ago is next. So a queue that shares its takers with another queue
// waits for at most one turn of that queue. The order in which the takers name the queues and the
// number of waiting tasks do not matter (T12).
type markedQueue struct {
	queue     *queue
	lastGrant uint64 // of the queue when it was marked
}

func markedLess(a, b markedQueue) bool { return a.lastGrant < b.lastGrant }

// add marks a queue to be matched, because a new task or a taker with room may now find a match.
// While the queue has no task or no taker, there is nothing to match; the next task or taker that
// comes marks the queue.
func (a *agenda) add(q *queue) {
	q.news = true
	a.resume(q)
}

// resume marks a queue to be matched in which nothing has changed: its turn has ended early.
func (a *agenda) resume(q *queue) {
	if !q.marked && q.waiting.Len() > 0 && q.available.Len() > 0 {
		q.marked = true
		a.queues.push(q.space.name.Tenant, markedQueue{q, q.lastGrant})
	}
}

// offer adds a taker that has room to the available takers of its queues, and marks these queues.
func (a *agenda) offer(t *taker) {
	if t.free() <= 0 {
		return
	}
	for _, q := range t.queues {
		if t.placeIn[q] == nil {
			t.placeIn[q] = q.available.PushBack(t)
		}
		a.add(q)
	}
}

// releasePreferred is called after a grant has used some of the taker's room, and after a task for
// which it had room could not be granted. It marks the queues that have tasks for which this
// taker's worker goes first, because other takers may get them now. Nothing else makes this
// necessary: while the worker had room for such a task, it got the task itself.
func (a *agenda) releasePreferred(t *taker) {
	for _, q := range t.queues {
		if len(q.pools.preferred[t.wants.Worker]) > 0 {
			a.add(q)
		}
	}
}

// empty reports whether no queue is marked.
func (a *agenda) empty() bool { return a.queues.len == 0 }

// next takes out the queue whose turn it is; nil if none is marked.
func (a *agenda) next() *queue {
	next, ok := a.queues.pop()
	if !ok {
		return nil
	}
	next.queue.marked = false
	return next.queue
}

// granted records a grant for the order of the queues, the turns of the flows, and the rate limit.
func (a *agenda) granted(q *queue, f *flow, now lease.Instant) {
	a.grants++
	q.lastGrant = a.grants
	q.takeTurn(f)
	if r := q.settings.Rate; r.PerSecond != 0 {
		q.bucket = r.Take(q.bucket, now)
	}
}

// heldUp reports whether the settings of a queue allow no grant now. What ends that marks the
// queue; of a rate limit, unthrottle does.
func (a *agenda) heldUp(q *queue, now lease.Instant) bool {
	block := q.state().Blocked(now)
	if block == lease.BlockedByRate {
		a.throttle(q, q.settings.Rate.Next(q.bucket, now))
	}
	return block != lease.NoBlock
}

// throttle lets unthrottle mark a queue at a time, in place of an earlier such time.
func (a *agenda) throttle(q *queue, until lease.Instant) {
	a.dropThrottle(q)
	q.throttled = until
	a.throttled.Set(throttle{until, q})
}

// dropThrottle is called when a queue need no longer wait for its rate limit: it has no tasks in
// line any more, or other settings. Otherwise the serving clock would be saved for this wait until
// its end, which may be a day away.
func (a *agenda) dropThrottle(q *queue) {
	if q.throttled != 0 {
		a.throttled.Delete(throttle{q.throttled, q})
		q.throttled = 0
	}
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
func (a *agenda) unthrottle(now lease.Instant) {
	for {
		t, ok := a.throttled.Min()
		if !ok || t.until > now {
			return
		}
		a.dropThrottle(t.queue)
		a.add(t.queue)
	}
}

// nextGrant returns when the first of the queues that wait for their rate limit need no longer wait
// for it.
func (a *agenda) nextGrant() (at lease.Instant, ok bool) {
	t, ok := a.throttled.Min()
	return t.until, ok
}

// wait returns how long it is until the first queue no longer has to wait for its rate limit, at
// most d.
func (a *agenda) wait(now lease.Now, d time.Duration) time.Duration {
	if t, ok := a.throttled.Min(); ok {
		d = min(d, t.until.Sub(now.Serving))
	}
	return d
}
