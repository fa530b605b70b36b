package engine

import "github.com/lessor-dev/lessor/lease"

// mostPassed is how many tasks of a line, or lines of a lineup, the engine checks for a taker that has no room for the first ones. mostSearched is how many it
// checks in all flows together: there may be as many flows as tasks. The tasks that it passes over stay for other takers.
var (
	mostPassed   = 64
	mostSearched = maxBatchChanges
)

// bestInQueue returns the place and the line of the first task for the taker: the task with the highest priority in the flow whose turn it is, and
// among equal priorities the task that has waited longest (T2). If the taker has no room for any task of that flow, because of their size
// or concurrency key, the next flow gets the turn, until mostSearched tasks have been passed over. The line is nil if there is no task for the taker.
func (e *Engine) bestInQueue(q *queue, t *taker) (l *line, at place) {
	pools := e.poolsFor(q, t)
	defer clear(pools)
	end := e.effort.after(mostSearched)
	for f := nextFlow(pools, nil); f != nil; f = nextFlow(pools, f) {
		e.effort.add(len(pools) / looksPerTry)
		if l, at = e.bestInFlow(f, pools, t, end); l != nil {
			return l, at
		}
		if e.effort.reached(end) {
			break
		}
	}
	return nil, place{}
}

// bestInFlow is bestInQueue for a flow. Once effort has reached end, it looks only at the first task of each other lineup: there may be as many as pools.
func (e *Engine) bestInFlow(f *flow, pools []*pool, t *taker, end int) (found *line, first place) {
	for _, p := range pools {
		up, most := f.pools[p], 1 // a taker without limits takes the first task
		if up == nil {
			continue
		}
		if t.wants.limitsByTask() && !e.effort.reached(end) {
			most = mostPassed
		}
		if l, at := e.firstInLineup(up, t, most); l != nil && (found == nil || placeLess(at, first)) {
			found, first = l, at
		}
	}
	return found, first
}

// firstInLineup returns the place of the first task of a lineup for which the taker has room, and its line. most is how many lines it looks at, and how many
// tasks of each of them. It reads on in a line of which it may look at more tasks than there are places in memory.
func (e *Engine) firstInLineup(up *lineup, t *taker, most int) (found *line, first place) {
	for {
		l, at, short := e.searchLineup(up, t, most)
		if short == nil {
			return l, at
		}
		e.lines.refill(short)
		e.lines.relist(short)
	}
}

// searchLineup is firstInLineup, but ends at a line of which too few places are in memory: short is that line.
func (e *Engine) searchLineup(up *lineup, t *taker, most int) (found *line, first place, short *line) {
	looked := 0
	up.lines.Scan(func(l *line) bool {
		switch {
		case found != nil && !placeLess(l.at, first): // this line and the later ones have no task before it
			return false
		case l.head.more && l.head.entries.Len() < most:
			short = l
			return false
		}
		if at, ok := e.firstInLine(l, t, most); ok && (found == nil || placeLess(at, first)) {
			found, first = l, at
		}
		looked++
		return looked < most
	})
	return found, first, short
}

// firstInLine returns the place of the first task of a line for which the taker has room; most is how many tasks it looks at. A task that it passes over counts
// as tried, because it may have to be read from the store.
func (e *Engine) firstInLine(l *line, t *taker, most int) (at place, ok bool) {
	if !t.wants.limitsByTask() {
		return l.head.first()
	}
	looked := 0
	l.head.entries.Scan(func(p place) bool {
		task := e.set.task(lease.TaskID{Space: l.queue.space.number, Seq: p.seq})
		if task == nil || t.suits(task, e.dataSize(task)) || e.parking.isFull(task) { // grantAt clears away an entry without a task, and parks one of a full key
			at, ok = p, true
		} else {
			e.effort.add(1)
		}
		looked++
		return !ok && looked < most
	})
	return at, ok
}

// hasRoom reports whether a worker would take a task of a pool now, as far as that can be told before effort reaches end. It adds to looks the number of
// takers of the worker at which it looks.
func (e *Engine) hasRoom(worker string, p *pool, end int, looks *int) bool {
	for t := range e.workers.takersOf(workerKey{p.queue.space.name.Tenant, worker}) {
		*looks++
		if t.free() > 0 && t.attends(p.queue) && t.takes(p.typ) && t.meets(p) && e.hasTaskFor(p, t, end) {
			return true
		}
	}
	return false
}

// hasTaskFor reports whether a pool has a task for which a taker has room. It checks only those tasks that bestInQueue would check, until
// effort reaches end.
func (e *Engine) hasTaskFor(p *pool, t *taker, end int) bool {
	if !t.wants.limitsByTask() {
		return true
	}
	for f := p.next(nil); f != nil && !e.effort.reached(end); f = p.next(f) {
		if l, _ := e.firstInLineup(f.pools[p], t, mostPassed); l != nil {
			return true
		}
	}
	return false
}
