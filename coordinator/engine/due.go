package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// readClocks reads the clocks. If the loop has stood still since the last reading, it handled no heartbeat in that time. Therefore readClocks first
// extends the live leases by that time, before anything else is decided, and the present round expires none (A8). It also extends them by the time of a slow
// commit, already while the commit runs, because reports that come in during the commit are judged before it ends.
func (e *Engine) readClocks() {
	before := e.now.Serving
	e.now = e.clock.now()
	e.compareClocks()
	if gap := e.now.Serving.Sub(before); gap >= standstill && e.set.live > 0 {
		e.stalled = true
		e.cfg.Events.StoodStill(gap)
		e.giveBack(gap)
	}
	if b := e.pipeline.oldest(); b != nil {
		if _, left := e.delay(b); left >= SlowCommit {
			e.giveBack(left)
		}
	}
}

// compareClocks tells if the wall clock was set since it was read last. Nothing else follows from that: leases do not depend on it (A8).
func (e *Engine) compareClocks() {
	ahead := wallAhead(e.now)
	if by := ahead - e.wallAhead; by.Abs() >= leastJump {
		e.cfg.Events.WallClockSet(by)
	}
	e.wallAhead = ahead
}

// wallAhead is the wall clock minus the serving clock.
func wallAhead(now lease.Now) time.Duration {
	return time.Duration(now.Wall) - time.Duration(now.Serving)
}

// giveBack extends the live leases by a standstill of the loop. With some 100,000 leases that is a standstill itself. Its own time is given back, too, but
// only once, together with the time that this second extension is expected to take: if each extension were a reason for the next, there would be no end.
func (e *Engine) giveBack(gap time.Duration) {
	e.extendLeases(gap)
	began := e.now.Serving
	e.now = e.clock.now()
	took := e.now.Serving.Sub(began)
	if took < standstill {
		return
	}
	e.extendLeases(3 * took)
	began, e.now = e.now.Serving, e.clock.now()
	if e.now.Serving.Sub(began) > 2*took { // the rest is a standstill of its own
		e.now.Serving = began.Add(2 * took)
	}
}

// extendLeases extends the live leases by a stall.
func (e *Engine) extendLeases(d time.Duration) {
	if e.set.live == 0 {
		return
	}
	e.extended += d
	bytes := e.batch().bytes
	for id, entry := range e.set.tasks {
		if isLeased(entry.task) {
			e.step(lease.Stall{Task: id, By: d})
		}
	}
	e.batch().bytes = bytes // otherwise the heartbeats that wait could not run in this round
	e.cfg.Events.Stalled(d, e.set.live)
}

// commitIsSlow reports whether the commit under way has taken at least SlowCommit. Timers then wait for its end: until then, nobody could learn of their
// effects anyway.
func (e *Engine) commitIsSlow() bool {
	b := e.pipeline.oldest()
	if b == nil {
		return false
	}
	lasted, _ := e.delay(b)
	return lasted >= SlowCommit
}

// delay returns for how long a batch has delayed all answers, and the part of that time by which the leases have not been extended yet. The delay
// begins with the hand-over of the batch to the committer, or with the end of the commit before, if that was later.
func (e *Engine) delay(b *batch) (lasted, left time.Duration) {
	since, extended := b.serving, b.extended
	if e.committedAt > since {
		since, extended = e.committedAt, e.extendedBefore
	}
	lasted = e.now.Serving.Sub(since)
	return lasted, lasted - (e.extended - extended)
}

// afterCommit extends the live leases by the rest of the time of a slow commit. During the commit, no worker learned of new grants and renewals, so
// no worker could acknowledge them (A8).
func (e *Engine) afterCommit(b *batch) {
	e.readClocks()
	if lasted, left := e.delay(b); lasted >= SlowCommit && left > 0 {
		e.giveBack(left)
	}
	e.committedAt, e.extendedBefore = e.now.Serving, e.extended
}

// expireDue applies the timers that are due, at most dueAtOnce. It never scans the tasks (T8).
func (e *Engine) expireDue() {
	for range dueAtOnce {
		k, of, ok := e.nextDue()
		if !ok {
			return
		}
		switch {
		case e.set.task(k.task) != nil:
			e.step(lease.Expire{Task: k.task})
		case of.recent.Has(of.inStore(k)): // it was read at the start, and its task had been removed by then
			of.recent.Forget(of.inStore(k))
			continue
		default:
			e.batch().dropLedger(k.task, lease.Instant(k.due))
		}
		e.dropStale(of, k)
	}
}

// nextDue returns an entry of a timeline that is due now.
func (e *Engine) nextDue() (k timerKey, of *timeline, ok bool) {
	for _, tl := range []*timeline{e.serving, e.wall} {
		if tl.rest.dry() {
			e.refillTimers(tl)
		}
		if k, ok := tl.next(); ok && k.due <= e.nowOn(tl) {
			return k, tl, true
		}
	}
	return k, nil, false
}

func (e *Engine) nowOn(tl *timeline) int64 {
	if tl == e.serving {
		return int64(e.now.Serving)
	}
	return int64(e.now.Wall)
}

// dropStale removes a timer that is still first in its timeline after it was applied: the timer of a ledger, or a timer that changed nothing in
// its task. Otherwise the loop would apply the timer again and again.
func (e *Engine) dropStale(of *timeline, k timerKey) {
	if next, ok := of.next(); ok && next == k {
		of.dropStale(k)
	}
}
