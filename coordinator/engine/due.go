package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// readClocks reads the clocks. If the loop has stood still since the last look, it heard nobody in that time, so live leases get the time back
// before anything else is decided (A8). The time of a commit that takes long is given back while it passes, because reports that come in
// during the commit are judged before it ends.
func (e *Engine) readClocks() {
	before := e.now.Serving
	e.now = e.clock.now()
	if gap := e.now.Serving.Sub(before); gap >= standstill && e.set.live > 0 {
		e.stalled = true
		e.giveBack(gap)
	}
	if len(e.inflight) > 0 {
		if _, left := e.waited(e.inflight[0]); left >= SlowCommit {
			e.giveBack(left)
		}
	}
}

// giveBack extends the live leases by a stall.
func (e *Engine) giveBack(d time.Duration) {
	if e.set.live == 0 {
		return
	}
	e.lost += d
	for id, h := range e.set.tasks {
		if h.task != nil && h.task.Lease != nil {
			e.step(e.now, lease.Stall{Task: id, By: d})
		}
	}
	e.cfg.Events.Stalled(d, e.set.live)
}

// commitIsSlow reports whether the commit under way takes long. Timers then wait for its end: nobody could be told of their effects before anyway.
func (e *Engine) commitIsSlow() bool {
	if len(e.inflight) == 0 {
		return false
	}
	lasted, _ := e.waited(e.inflight[0])
	return lasted >= SlowCommit
}

// waited returns for how long nobody could be told anything because of a batch, and how much of that time the leases have not got back yet.
func (e *Engine) waited(b *batch) (lasted, left time.Duration) {
	since, lost := e.silent(b)
	lasted = e.now.Serving.Sub(since)
	return lasted, lasted - (e.lost - lost)
}

// silent returns since when nothing was told, and the value of e.lost then: since the batch was handed over, or since the commit before it was
// told, if that was later.
func (e *Engine) silent(b *batch) (since lease.Instant, lost time.Duration) {
	if e.toldAt > b.serving {
		return e.toldAt, e.toldLost
	}
	return b.serving, b.lost
}

// afterCommit gives leases back what is left of the time of a commit that took long. During the commit nobody heard of new grants and
// renewals, so nobody could acknowledge them (A8).
func (e *Engine) afterCommit(b *batch) {
	e.readClocks()
	if lasted, left := e.waited(b); lasted >= SlowCommit && left > 0 {
		e.giveBack(left)
	}
	e.toldAt, e.toldLost = e.now.Serving, e.lost
}

// expireDue applies the timers that are due, at most dueAtOnce of them. It never scans the tasks (T8).
func (e *Engine) expireDue() {
	for range dueAtOnce {
		k, ok := e.nextDue()
		if !ok {
			return
		}
		if e.set.task(k.task) != nil {
			e.step(e.now, lease.Expire{Task: k.task})
		} else {
			e.batch.forget = append(e.batch.forget, gone{task: k.task, due: lease.Instant(k.due)})
		}
		e.dropStale(k)
	}
}

// nextDue returns an entry of a timeline that is due now.
func (e *Engine) nextDue() (timerKey, bool) {
	for _, tl := range []*timeline{e.serving, e.wall} {
		if tl.rest.dry() {
			e.refillTimers(tl)
		}
		if k, ok := tl.next(); ok && k.due <= e.nowOn(tl) {
			return k, true
		}
	}
	return timerKey{}, false
}

func (e *Engine) nowOn(tl *timeline) int64 {
	if tl == e.serving {
		return int64(e.now.Serving)
	}
	return int64(e.now.Wall)
}

// dropStale removes a timer that is still first in its timeline after it was applied: the timer of a ledger, or one to which its task did not
// react. Otherwise it would be applied again for ever.
func (e *Engine) dropStale(k timerKey) {
	for _, tl := range []*timeline{e.serving, e.wall} {
		if next, ok := tl.next(); ok && next == k && k.due <= e.nowOn(tl) {
			tl.leased.Delete(k)
			tl.rest.remove(k)
		}
	}
}
