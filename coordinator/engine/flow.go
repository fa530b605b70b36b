package engine

import (
	"maps"
	"math"

	"github.com/lessor-dev/lessor/lease"
)

// flow holds the lines of a queue that share a fairness key. Flows take turns (T12): the next turn of a flow begins at a point of the queue's
// virtual time, and the turn after that begins 1/weight later. The flow whose turn begins first is next. A flow cannot save up turns while it has
// no waiting task: its next turn begins at the present virtual time. So a flow with a million tasks delays another flow's single task by one turn.
type flow struct {
	key   string
	begin float64 // virtual time at which its next turn begins
	lines map[lineKey]*line
	pools map[*pool]*lineup // its lines that hold a task, by their pool

	mostPools int // see shrunk
}

// lineKey identifies a line within a flow.
type lineKey struct {
	typ   string
	class lease.Class
}

func flowLess(a, b *flow) bool {
	if a.begin != b.begin {
		return a.begin < b.begin
	}
	return a.key < b.key
}

// line finds the line of a kind of task or makes it.
func (q *queue) line(kind lease.Line) *line {
	if q.flows == nil {
		q.flows, q.pools, q.idle = map[string]*flow{}, newPools(), newTree(flowLess)
	}
	f := q.flows[kind.Fairness]
	if f == nil {
		q.virtual += 1 / float64(keptFlows) // otherwise a stream of new keys would delay the other flows without end
		f = &flow{key: kind.Fairness, begin: q.virtual, lines: map[lineKey]*line{}, pools: map[*pool]*lineup{}}
		q.flows[kind.Fairness] = f
		q.forgetIdle() // also if no task of the queue is ever granted
	}
	key := lineKey{kind.Type, kind.Class}
	l := f.lines[key]
	if l == nil {
		q.idle.Delete(f)
		l = &line{kind: kind, queue: q, flow: f, head: newHead(lineHead, placeLess), placement: kind.Class.Placement()}
		f.lines[key] = l
	}
	return l
}

func (l *line) key() lineKey { return lineKey{l.kind.Type, l.kind.Class} }

// takeTurn records that a flow has taken its turn: its next turn begins 1/weight later.
func (q *queue) takeTurn(f *flow) {
	if len(q.flows) == 1 {
		return // there is no other flow
	}
	begin := max(f.begin, q.virtual)
	later := math.Nextafter(begin, math.Inf(1)) // after years 1/weight could be lost in rounding: the flow would have all turns
	f.move(q, max(begin+1/q.settings.Weight(f.key), later))
	q.virtual = begin
	q.forgetIdle()
}

// forgetIdle deletes idle flows whose next turn is not later than the virtual time any more, and all beyond keptFlows.
func (q *queue) forgetIdle() {
	for {
		idle, ok := q.idle.Min()
		if !ok || idle.begin > q.virtual && q.idle.Len() <= keptFlows {
			return
		}
		q.idle.PopMin()
		delete(q.flows, idle.key)
		q.virtual = max(q.virtual, idle.begin)
	}
}

// reweigh applies new weights at once: it scales the remaining wait of each flow to the wait after a last turn with the new weight. Otherwise a
// flow that took a turn with a low weight could wait for a thousand turns of the other flows, even if its weight is high now.
func (q *queue) reweigh(to *lease.Settings) {
	named := map[string]float64{} // only these keys can change; there may be far more flows
	maps.Copy(named, q.settings.Weights)
	maps.Copy(named, to.Weights)
	for key := range named {
		if f := q.flows[key]; f != nil && f.begin > q.virtual {
			f.move(q, q.virtual+(f.begin-q.virtual)*q.settings.Weight(key)/to.Weight(key))
		}
	}
}

// keptFlows is the most idle flows that a queue keeps. It keeps them so that a flow that becomes idle and comes back does not get a turn too early.
var keptFlows = 1024

// movesAtOnce is how many lineups of a flow move when it takes its turn. A flow may have as many lineups as tasks, and the others move when their pool finds
// them first: see pool.next.
var movesAtOnce = 16

// move sets when the next turn of a flow begins.
func (f *flow) move(q *queue, begin float64) {
	idle, later := len(f.lines) == 0, begin >= f.begin
	if idle {
		q.idle.Delete(f)
	}
	f.begin = begin
	if idle {
		q.idle.Set(f)
	}
	moved := 0
	for _, up := range f.pools {
		if moved++; moved > movesAtOnce && later { // a lineup must not stand too late
			return
		}
		up.move()
	}
}

// nextFlow returns the flow whose turn it is among those that have something in the pools. If passed is not nil, it considers only flows whose
// turn comes after that of passed. It returns nil if there is none.
func nextFlow(pools []*pool, passed *flow) (found *flow) {
	for _, p := range pools {
		if f := p.next(passed); f != nil && (found == nil || flowLess(f, found)) {
			found = f
		}
	}
	return found
}

// next returns the flow of the pool whose turn comes after that of passed, or the first one if passed is nil. It returns nil if there is none.
func (p *pool) next(passed *flow) *flow {
	for {
		up := p.after(passed)
		switch {
		case up == nil:
			return nil
		case up.begin == up.flow.begin:
			return up.flow
		}
		up.move()
	}
}

// after returns the lineup that stands after that of passed, or the first one if passed is nil. It returns nil if there is none.
func (p *pool) after(passed *flow) (found *lineup) {
	if passed == nil {
		found, _ = p.turns.Min()
		return found
	}
	p.turns.Ascend(&lineup{flow: passed, begin: passed.begin}, func(up *lineup) bool {
		if up.flow != passed {
			found = up
		}
		return found == nil
	})
	return found
}

// bestInQueue returns the place and the line of the first task for the taker: the task with the highest priority in the flow whose turn it is, and
// among equal priorities the task that has waited longest (T2). If the taker has no room for any task of that flow, because of their size
// or concurrency key, the next flow gets the turn, until mostSearched tasks have been passed over. The line is nil if there is no task for the taker.
func (e *Engine) bestInQueue(q *queue, t *taker) (l *line, at place) {
	pools := e.poolsFor(q, t)
	defer clear(pools)
	begun := e.tried
	for f := nextFlow(pools, nil); f != nil; f = nextFlow(pools, f) {
		e.tried += len(pools) / looksPerTry
		if l, at = e.bestInFlow(f, pools, t, begun+mostSearched); l != nil {
			return l, at
		}
		if e.tried-begun >= mostSearched {
			break
		}
	}
	return nil, place{}
}

// bestInFlow is bestInQueue for a flow. When so much was tried, it looks only at the first task of each other lineup: there may be as many as pools.
func (e *Engine) bestInFlow(f *flow, pools []*pool, t *taker, end int) (found *line, first place) {
	for _, p := range pools {
		up, most := f.pools[p], 1 // a taker without limits takes the first task
		if up == nil {
			continue
		}
		if t.wants.limitsByTask() && e.tried < end {
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
		e.refillLine(short)
		e.relist(short)
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
