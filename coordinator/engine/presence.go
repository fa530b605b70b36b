package engine

import "github.com/lessor-dev/lessor/lease"

// workerKey names a worker.
type workerKey struct{ tenant, worker string }

// presence is kept for a worker while it is present, or while tasks that are pinned to it wait (W12). A worker that calls Lease has no stream: it is
// present while a call waits, and while it has live leases from its calls.
type presence struct {
	takers map[*taker]struct{}     // its sessions and unary requests
	leases int                     // number of its live leases that belong to no session
	pinned map[*line]struct{}      // lines with waiting tasks that are pinned to it
	parked map[parkedLine]struct{} // the same of tasks that are parked
	end    *alarm                  // while it is not present: gives up the tasks that wait for it
}

// parkedLine names the tasks of a line that are parked under a concurrency key.
type parkedLine struct {
	key  *concurrencyKey
	line lease.Line
}

func (p *presence) isPresent() bool { return len(p.takers) > 0 || p.leases > 0 }

// isAwaited reports whether tasks that are pinned to the worker wait.
func (p *presence) isAwaited() bool { return len(p.pinned)+len(p.parked) > 0 }

func (e *Engine) presence(k workerKey) *presence {
	p := e.workers[k]
	if p == nil {
		p = &presence{takers: map[*taker]struct{}{}, pinned: map[*line]struct{}{}, parked: map[parkedLine]struct{}{}}
		e.workers[k] = p
	}
	return p
}

func (t *taker) key() workerKey { return workerKey{t.wants.Space.Tenant, t.wants.Worker} }

// takerArrived records that a worker is present.
func (e *Engine) takerArrived(t *taker) {
	p := e.presence(t.key())
	p.takers[t] = struct{}{}
	e.takers[t] = struct{}{}
	e.stopAbsence(p)
}

// stopAbsence ends the wait for a worker that is present again.
func (e *Engine) stopAbsence(p *presence) {
	e.alarms.stop(p.end)
	p.end = nil
}

// updateUnaryLeases updates the number of live leases of workers without a stream.
func (e *Engine) updateUnaryLeases(c *lease.Change) {
	was, is := callerOf(c.Old), callerOf(c.New)
	if was == is {
		return
	}
	if is != (workerKey{}) {
		e.addUnaryLease(is)
	}
	if was != (workerKey{}) {
		p := e.workers[was]
		p.leases--
		e.updatePresence(was, p)
	}
}

// addUnaryLease counts one more live lease of a worker without a stream.
func (e *Engine) addUnaryLease(k workerKey) {
	p := e.presence(k)
	p.leases++
	e.stopAbsence(p)
}

// callerOf returns the worker that has the live lease of a task, if the lease belongs to no session.
func callerOf(t *lease.Task) workerKey {
	if !isLeased(t) || t.Lease.Session != "" {
		return workerKey{}
	}
	return workerKey{t.Tenant, t.Lease.Worker}
}

// takerLeft records that a taker is gone.
func (e *Engine) takerLeft(t *taker) {
	t.left = true
	e.alarms.stop(t.coolingDown)
	delete(e.takers, t)
	p := e.workers[t.key()]
	if p == nil {
		return
	}
	delete(p.takers, t)
	e.updatePresence(t.key(), p)
}

// updatePresence is called when the takers, the leases or the pinned lines of a worker have changed. If the worker is not present but tasks wait for
// it, updatePresence sets the alarm that gives these tasks up. If no tasks wait for it either, it deletes the worker.
func (e *Engine) updatePresence(k workerKey, p *presence) {
	switch {
	case p.isPresent():
	case !p.isAwaited():
		e.alarms.stop(p.end)
		delete(e.workers, k)
	case p.end == nil:
		p.end = e.alarms.in(e.cfg.ResourceWait, func() { e.loseResources(k) })
	}
}

// trackLine registers a line in which tasks wait, if they are pinned to a worker or have an affinity key.
func (e *Engine) trackLine(l *line) {
	switch p := &l.placement; {
	case p.Worker != "":
		k := workerKey{l.queue.space.name.Tenant, p.Worker}
		w := e.presence(k)
		w.pinned[l] = struct{}{}
		e.updatePresence(k, w)
	case p.Affinity != "":
		s := l.queue.space
		if s.affinityLines[p.Affinity] == nil {
			s.affinityLines[p.Affinity] = map[*line]struct{}{}
		}
		s.affinityLines[p.Affinity][l] = struct{}{}
	}
}

// untrackLine undoes trackLine.
func (e *Engine) untrackLine(l *line) {
	switch p := &l.placement; {
	case p.Worker != "":
		k := workerKey{l.queue.space.name.Tenant, p.Worker}
		w := e.workers[k]
		delete(w.pinned, l)
		e.updatePresence(k, w)
	case p.Affinity != "":
		s := l.queue.space
		if delete(s.affinityLines[p.Affinity], l); len(s.affinityLines[p.Affinity]) == 0 {
			delete(s.affinityLines, p.Affinity)
		}
	}
}

// trackParked registers a line of parked tasks that are pinned to a worker, and untrackParked undoes that.
func (e *Engine) trackParked(l parkedLine) {
	if k := l.pinnedTo(); k.worker != "" {
		w := e.presence(k)
		w.parked[l] = struct{}{}
		e.updatePresence(k, w)
	}
}

func (e *Engine) untrackParked(l parkedLine) {
	if k := l.pinnedTo(); k.worker != "" {
		w := e.workers[k]
		delete(w.parked, l)
		e.updatePresence(k, w)
	}
}

// pinnedTo returns the worker to which the tasks of the line are pinned; its name is empty if they are not.
func (l parkedLine) pinnedTo() workerKey {
	return workerKey{l.key.space.name.Tenant, l.line.Class.Placement().Worker}
}

// lossesPerRound is how many tasks are given up before other operations have their turn.
var lossesPerRound = 200

// loseResources gives up the tasks that wait for a worker that has been gone for too long.
func (e *Engine) loseResources(k workerKey) {
	p := e.workers[k]
	n := 0
	for l := range p.pinned { // p.end is still the alarm that has rung, so updatePresence sets no other alarm when a line becomes empty
		if n == lossesPerRound {
			break
		}
		for ; n < lossesPerRound && l.lineup != nil; n++ {
			e.loseFirst(l, k.worker)
		}
	}
	for l := range p.parked {
		if n == lossesPerRound {
			break
		}
		for ; n < lossesPerRound && l.key.parked[l.line] != nil; n++ {
			e.loseFirstParked(l, k.worker)
		}
	}
	p.end = nil
	if p.isAwaited() { // the rest follows in the next rounds, without another wait: see ringAlarms
		p.end = e.alarms.in(0, func() { e.loseResources(k) })
	}
}

func (e *Engine) loseFirst(l *line, worker string) {
	if l.head.dry() {
		e.refillLine(l)
	}
	if p, ok := l.head.first(); ok {
		e.loseResource(l.queue.space, p, worker)
		l.head.remove(p) // even if the index entry has no task: such an entry must not block the line
	}
	if l.lineup != nil {
		e.relist(l)
	}
}

// loseFirstParked is loseFirst for a line of parked tasks: they need not have the room of their key to fail.
func (e *Engine) loseFirstParked(l parkedLine, worker string) {
	h := l.key.parked[l.line]
	p, ok := e.firstParked(l.key, l.line, h)
	if !ok {
		e.mayHaveRoom(l.key) // it may be needed no more
		return
	}
	e.loseResource(l.key.space, p, worker)
	e.removeParked(l.key, l.line, h, p) // as in loseFirst
}

func (e *Engine) loseResource(s *space, p place, worker string) {
	e.step(lease.LoseResource{Task: lease.TaskID{Space: s.number, Seq: p.seq}, Worker: worker, After: e.cfg.ResourceWait})
}
