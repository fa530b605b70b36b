package engine

import (
	"maps"
	"math"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
)

// flow holds the lines of a queue that share a fairness key. Flows take turns (T12): the next turn
// of a flow begins at a point of the queue's virtual time, and the turn after that begins 1/weight
// later. The flow whose turn begins first is next. A flow cannot save up turns while it has no
// waiting task: its next turn begins at the present virtual time. So a flow with a million tasks
// delays another flow's single task by one turn.
type flow struct {
	key   string
	begin float64 // virtual time at which its next turn begins
	lines map[lineKey]*line
	pools map[*pool]*lineup // its lines that hold a task, by their pool

	mostPools int // see shrunk
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
		q.flows, q.pools, q.idle = map[string]*flow{}, newPools(), ordered.NewSet(flowLess)
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

// takeTurn records that a flow has taken its turn: its next turn begins 1/weight later.
func (q *queue) takeTurn(f *flow) {
	if len(q.flows) == 1 {
		return // there is no other flow
	}
	begin := max(f.begin, q.virtual)
	// after years 1/weight could be lost in rounding: the flow would have all turns
	later := math.Nextafter(begin, math.Inf(1))
	f.move(q, max(begin+1/q.settings.Weight(f.key), later))
	q.virtual = begin
	q.forgetIdle()
}

// forgetIdle deletes idle flows whose next turn is not later than the virtual time any more, and
// all beyond keptFlows.
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

// reweigh applies new weights at once: it scales the remaining wait of each flow to the wait after
// a last turn with the new weight. Otherwise a flow that took a turn with a low weight could wait
// for a thousand turns of the other flows, even if its weight is high now.
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

// keptFlows is the most idle flows that a queue keeps. It keeps them so that a flow that becomes
// idle and comes back does not get a turn too early.
var keptFlows = 1024

// movesAtOnce is how many lineups of a flow move when it takes its turn. A flow may have as many
// lineups as tasks, and the others move when their pool finds them first: see pool.next.
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

// nextFlow returns the flow whose turn it is among those that have something in the pools. If
// passed is not nil, it considers only flows whose turn comes after that of passed. It returns nil
// if there is none.
func nextFlow(pools []*pool, passed *flow) (found *flow) {
	for _, p := range pools {
		if f := p.next(passed); f != nil && (found == nil || flowLess(f, found)) {
			found = f
		}
	}
	return found
}

// next returns the flow of the pool whose turn comes after that of passed, or the first one if
// passed is nil. It returns nil if there is none.
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

// after returns the lineup that stands after that of passed, or the first one if passed is nil. It
// returns nil if there is none.
func (p *pool) after(passed *flow) (found *lineup) {
	if passed == nil {
		found, _ = p.turns.Min()
		return found
	}
	found, _ = p.turns.Next(&lineup{flow: passed, begin: passed.begin})
	return found
}
