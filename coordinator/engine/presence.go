package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// workerKey names a worker.
type workerKey struct{ tenant, worker string }

// presence is kept for a worker while it is present, or while tasks that are pinned to it wait
// (W12). A worker that calls Lease has no stream: it is present while a call waits, and while it
// has live leases from its calls.
type presence struct {
	takers map[*taker]struct{}      // its sessions and unary requests
	leases int                      // number of its live leases that belong to no session
	pinned map[*line]struct{}       // lines with waiting tasks that are pinned to it
	parked map[*parkedLine]struct{} // the same of tasks that are parked
	end    *alarm                   // while it is not present: gives up the tasks that wait for it
}

func (p *presence) isPresent() bool { return len(p.takers) > 0 || p.leases > 0 }

// isAwaited reports whether tasks that are pinned to the worker wait.
func (p *presence) isAwaited() bool { return len(p.pinned)+len(p.parked) > 0 }

// workers has the workers that are present, or for which pinned tasks wait. It belongs to the loop.
type workers struct {
	byKey  map[workerKey]*presence
	takers map[*taker]struct{} // sessions, and unary requests that wait

	alarms *alarms
	wait   time.Duration   // how long tasks wait for a worker that is not present
	lost   func(workerKey) // gives up tasks that have waited for a worker for too long, and then calls gaveUp
}

func newWorkers(as *alarms, wait time.Duration, lost func(workerKey)) *workers {
	return &workers{byKey: map[workerKey]*presence{}, takers: map[*taker]struct{}{}, alarms: as, wait: wait, lost: lost}
}

// obtain finds the presence of a worker or makes it.
func (ws *workers) obtain(k workerKey) *presence {
	p := ws.byKey[k]
	if p == nil {
		p = &presence{takers: map[*taker]struct{}{}, pinned: map[*line]struct{}{}, parked: map[*parkedLine]struct{}{}}
		ws.byKey[k] = p
	}
	return p
}

// isPresent reports whether a worker is present.
func (ws *workers) isPresent(k workerKey) bool {
	p := ws.byKey[k]
	return p != nil && p.isPresent()
}

// isBusyWithoutSession reports whether a worker asks for no work because it works: one without a
// session asks only when it has nothing to do.
func (ws *workers) isBusyWithoutSession(k workerKey) bool {
	p := ws.byKey[k]
	return p != nil && len(p.takers) == 0 && p.leases > 0
}

// takersOf returns the takers of a worker.
func (ws *workers) takersOf(k workerKey) map[*taker]struct{} {
	if p := ws.byKey[k]; p != nil {
		return p.takers
	}
	return nil
}

// allTakers returns the takers of all workers.
func (ws *workers) allTakers() map[*taker]struct{} { return ws.takers }

// absence returns the alarm that gives up the tasks that wait for a worker which is not present;
// nil if there is none.
func (ws *workers) absence(k workerKey) *alarm {
	if p := ws.byKey[k]; p != nil {
		return p.end
	}
	return nil
}

func (t *taker) key() workerKey { return workerKey{t.wants.Space.Tenant, t.wants.Worker} }

// arrived records that a worker is present.
func (ws *workers) arrived(t *taker) {
	p := ws.obtain(t.key())
	p.takers[t] = struct{}{}
	ws.takers[t] = struct{}{}
	ws.stopAbsence(p)
}

// left records that a taker is gone.
func (ws *workers) left(t *taker) {
	t.gone = true
	t.refused.stop(ws.alarms)
	ws.alarms.stop(t.makesRoom)
	delete(ws.takers, t)
	p := ws.byKey[t.key()]
	if p == nil {
		return
	}
	delete(p.takers, t)
	ws.update(t.key(), p)
}

// stopAbsence ends the wait for a worker that is present again.
func (ws *workers) stopAbsence(p *presence) {
	ws.alarms.stop(p.end)
	p.end = nil
}

// recount updates the number of live leases of workers without a stream after a change of a task.
func (ws *workers) recount(c *lease.Change) {
	was, is := callerOf(c.Old), callerOf(c.New)
	if was == is {
		return
	}
	if is != (workerKey{}) {
		ws.addLease(is)
	}
	if was != (workerKey{}) {
		p := ws.byKey[was]
		p.leases--
		ws.update(was, p)
	}
}

// addLease counts one more live lease of a worker without a stream.
func (ws *workers) addLease(k workerKey) {
	p := ws.obtain(k)
	p.leases++
	ws.stopAbsence(p)
}

// callerOf returns the worker that has the live lease of a task, if the lease belongs to no
// session.
func callerOf(t *lease.Task) workerKey {
	if !isLeased(t) || t.Lease.Session != "" {
		return workerKey{}
	}
	return workerKey{t.Tenant, t.Lease.Worker}
}

// update is called when the takers, the leases or the pinned lines of a worker have changed. If the
// worker is not present but tasks wait for it, update sets the alarm that gives these tasks up. If
// no tasks wait for it either, it deletes the worker.
func (ws *workers) update(k workerKey, p *presence) {
	switch {
	case p.isPresent():
	case !p.isAwaited():
		ws.alarms.stop(p.end)
		delete(ws.byKey, k)
	case p.end == nil:
		p.end = ws.alarms.in(ws.wait, func() { ws.lost(k) })
	}
}

// track registers a line in which tasks wait, if they are pinned to a worker.
func (ws *workers) track(l *line) {
	if k := l.pinnedTo(); k.worker != "" {
		p := ws.obtain(k)
		p.pinned[l] = struct{}{}
		ws.update(k, p)
	}
}

// untrack undoes what track did.
func (ws *workers) untrack(l *line) {
	if k := l.pinnedTo(); k.worker != "" {
		p := ws.byKey[k]
		delete(p.pinned, l)
		ws.update(k, p)
	}
}

// trackParked and untrackParked do the same for a line of parked tasks.
func (ws *workers) trackParked(l *parkedLine) {
	if k := l.pinnedTo(); k.worker != "" {
		p := ws.obtain(k)
		p.parked[l] = struct{}{}
		ws.update(k, p)
	}
}

func (ws *workers) untrackParked(l *parkedLine) {
	if k := l.pinnedTo(); k.worker != "" {
		p := ws.byKey[k]
		delete(p.parked, l)
		ws.update(k, p)
	}
}

// awaiting returns the presence of a worker that is lost.
func (ws *workers) awaiting(k workerKey) *presence { return ws.byKey[k] }

// gaveUp is called when lost has given up tasks that waited for a worker. The rest follows in the
// next rounds, without another wait: see ringAlarms.
func (ws *workers) gaveUp(k workerKey, p *presence) {
	p.end = nil
	if p.isAwaited() {
		p.end = ws.alarms.in(0, func() { ws.lost(k) })
	}
}
