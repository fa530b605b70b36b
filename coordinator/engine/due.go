package engine

import "github.com/lessor-dev/lessor/lease"

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
		return int64(e.now().Serving)
	}
	return int64(e.now().Wall)
}

// dropStale removes a timer that is still first in its timeline after it was applied: the timer of a ledger, or a timer that changed nothing in
// its task. Otherwise the loop would apply the timer again and again.
func (e *Engine) dropStale(of *timeline, k timerKey) {
	if next, ok := of.next(); ok && next == k {
		of.dropStale(k)
	}
}
