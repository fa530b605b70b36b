package engine

import "github.com/lessor-dev/lessor/lease"

// mostPassed is how many tasks of a line, or lines of a lineup, the engine checks for a taker that
// has no room for the first ones. mostSearched is how many it checks in all flows together: there
// may be as many flows as tasks. The tasks that it passes over stay for other takers.
var (
	mostPassed   = 64
	mostSearched = maxBatchChanges
)

// search finds the tasks that takers may take. It belongs to the loop.
type search struct {
	found []*pool // memory for poolsFor

	clocks  *clocks
	set     *workset
	workers *workers
	lines   *lines
	parking *parking
	effort  *effort
}

// best returns the place and the line of the first task for the taker: the task with the highest
// priority in the flow whose turn it is, and among equal priorities the task that has waited
// longest (T2). If the taker has no room for any task of that flow, because of their size or
// concurrency key, the next flow gets the turn, until mostSearched tasks have been passed over. A
// task that has waited longer than passedFor is not passed over because of its size: see makeRoom.
// The line is nil if there is no task for the taker.
func (sr *search) best(q *queue, t *taker) (l *line, at place) {
	pools := sr.poolsFor(q, t)
	defer clear(pools)
	end := sr.effort.after(mostSearched)
	for f := nextFlow(pools, nil); f != nil; f = nextFlow(pools, f) {
		sr.effort.add(len(pools) / looksPerTry)
		if l, at = sr.bestInFlow(f, pools, t, end); l != nil {
			return l, at
		}
		if sr.effort.reached(end) {
			break
		}
	}
	return nil, place{}
}

// looksPerTry is how many pools cost about as much to look at as it costs to grant a task. The
// number of pools is not bounded: a producer may give each task another type or other requirements.
const looksPerTry = 16

// poolsFor returns the pools from which the taker may take a task now; they are valid until the
// next call. Finding out for which PREFERRED pools other workers have no room looks at roughly
// mostSearched tasks, in all pools together.
func (sr *search) poolsFor(q *queue, t *taker) []*pool {
	end, looks := sr.effort.after(mostSearched), 0
	found := sr.found[:0]
	fits := func(p *pool) bool {
		looks++
		return p != nil && p.turns.Len() > 0 && t.takes(p.typ) && t.meets(p)
	}
	look := func(p *pool) {
		if fits(p) {
			found = append(found, p)
		}
	}
	if len(t.wants.Types) > 0 {
		for _, typ := range t.wants.Types {
			look(q.pools.plain[typ])
		}
	} else {
		for _, p := range q.pools.plain {
			look(p)
		}
	}
	for _, p := range q.pools.demanding {
		look(p)
	}
	for _, p := range q.pools.tied[t.wants.Worker] {
		look(p)
	}
	for worker, all := range q.pools.preferred {
		for _, p := range all {
			if fits(p) && (worker == t.wants.Worker || !sr.hasRoom(worker, p, end, &looks)) {
				found = append(found, p)
			}
		}
	}
	sr.effort.add(looks / looksPerTry)
	sr.found = found
	return found
}

// bestInFlow is best for a flow. Once effort has reached end, it looks only at the first task of
// each other lineup: there may be as many as pools.
func (sr *search) bestInFlow(f *flow, pools []*pool, t *taker, end int) (found *line, first place) {
	for _, p := range pools {
		up, most := f.pools[p], 1 // a taker without limits takes the first task
		if up == nil {
			continue
		}
		if t.wants.limitsByTask() && !sr.effort.reached(end) {
			most = mostPassed
		}
		if l, at := sr.firstInLineup(up, t, most); l != nil && (found == nil || placeLess(at, first)) {
			found, first = l, at
		}
	}
	return found, first
}

// firstInLineup returns the place of the first task of a lineup for which the taker has room, and
// its line. most is how many lines it looks at, and how many tasks of each of them. It reads on in
// a line of which it may look at more tasks than there are places in memory.
func (sr *search) firstInLineup(up *lineup, t *taker, most int) (found *line, first place) {
	for {
		l, at, short := sr.searchLineup(up, t, most)
		if short == nil {
			return l, at
		}
		sr.lines.refill(short)
		sr.lines.relist(short)
	}
}

// searchLineup is firstInLineup, but ends at a line of which too few places are in memory: short is
// that line.
func (sr *search) searchLineup(up *lineup, t *taker, most int) (found *line, first place, short *line) {
	looked := 0
	for l, ok := up.lines.Min(); ok; l, ok = up.lines.Next(l) {
		switch {
		case found != nil && !placeLess(l.at, first): // this line and the later ones have no task before it
			return found, first, nil
		case l.head.more && l.head.entries.Len() < most:
			return found, first, l
		}
		if at, ok := sr.firstInLine(l, t, most); ok && (found == nil || placeLess(at, first)) {
			found, first = l, at
		}
		if looked++; looked == most {
			break
		}
	}
	return found, first, nil
}

// firstInLine returns the place of the first task of a line for which the taker has room, or has to
// make room; most is how many tasks it looks at. A task that it passes over counts as tried,
// because it may have to be read from the store.
func (sr *search) firstInLine(l *line, t *taker, most int) (at place, ok bool) {
	if !t.wants.limitsByTask() {
		return l.head.first()
	}
	looked := 0
	for at, ok = l.head.first(); ok && looked < most; at, ok = l.head.entries.Next(at) {
		task := sr.set.task(lease.TaskID{Space: l.queue.space.number, Seq: at.seq})
		// grantAt clears away an entry without a task, and parks one of a full key; makeRoom has to
		// do with one that may not be passed over any more
		if task == nil || t.suits(task, dataSize(task)) || sr.parking.isFull(task) ||
			!t.mayPass(task, sr.clocks.now().Serving) {
			return at, true
		}
		sr.effort.add(1)
		looked++
	}
	return place{}, false
}

// hasRoom reports whether a worker would take a task of a pool now, as far as that can be told
// before effort reaches end. It adds to looks the number of takers of the worker at which it looks.
func (sr *search) hasRoom(worker string, p *pool, end int, looks *int) bool {
	for t := range sr.workers.takersOf(workerKey{p.queue.space.name.Tenant, worker}) {
		*looks++
		if t.free() > 0 && t.attends(p.queue) && t.takes(p.typ) && t.meets(p) && sr.hasTaskFor(p, t, end) {
			return true
		}
	}
	return false
}

// hasTaskFor reports whether a pool has a task for which a taker has room. It checks only those
// tasks that best would check, until effort reaches end.
func (sr *search) hasTaskFor(p *pool, t *taker, end int) bool {
	if !t.wants.limitsByTask() {
		return true
	}
	for f := p.next(nil); f != nil && !sr.effort.reached(end); f = p.next(f) {
		if l, _ := sr.firstInLineup(f.pools[p], t, mostPassed); l != nil {
			return true
		}
	}
	return false
}
