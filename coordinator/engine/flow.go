package engine

import (
	"maps"

	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// flow is the part of a queue with one fairness key. Flows take turns (T12): each turn of a flow begins at a point of the queue's virtual
// time, and the next one 1/weight later; the flow whose turn begins first is next. A flow that had nothing waiting has saved nothing up:
// its turn begins at the present virtual time, which is why one with a million tasks delays another's single task by one turn.
type flow struct {
	key   string
	begin float64 // of its next turn, in virtual time
	lines map[lineKey]*line
	pools map[*pool]*lineup // of its lines that hold a task
}

// lineKey tells the lines of a flow apart.
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

// newTurns orders flows, the next one first.
func newTurns() *btree.BTreeG[*flow] {
	return btree.NewBTreeGOptions(flowLess, btree.Options{NoLocks: true})
}

// line finds the line of a kind of task or makes it.
func (q *queue) line(kind lease.Line) *line {
	f := q.flows[kind.Fairness]
	if f == nil {
		q.virtual += 1.0 / keptFlows // else a stream of new keys would hold up the others for ever
		f = &flow{key: kind.Fairness, begin: q.virtual, lines: map[lineKey]*line{}, pools: map[*pool]*lineup{}}
		q.flows[kind.Fairness] = f
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

// took takes note of a turn of a flow.
func (q *queue) took(f *flow) {
	if len(q.flows) == 1 {
		return // nobody to take turns with
	}
	begin := max(f.begin, q.virtual)
	f.move(q, begin+1/q.settings.Weight(f.key))
	q.virtual = begin
	for { // flows with which the others have caught up are forgotten
		idle, ok := q.idle.Min()
		if !ok || idle.begin > q.virtual && q.idle.Len() <= keptFlows {
			return
		}
		q.idle.PopMin()
		delete(q.flows, idle.key)
		q.virtual = max(q.virtual, idle.begin)
	}
}

// reweigh has new weights count at once: what is left of the way to the next turn of a flow is as long as if its last turn had been taken by its new
// weight. Else one that had little weight when it took a turn would wait for a thousand turns of the others, whatever is set now.
func (q *queue) reweigh(to *lease.Settings) {
	named := map[string]float64{} // there may be far more flows
	maps.Copy(named, q.settings.Weights)
	maps.Copy(named, to.Weights)
	for key := range named {
		if f := q.flows[key]; f != nil && f.begin > q.virtual {
			f.move(q, q.virtual+(f.begin-q.virtual)*q.settings.Weight(key)/to.Weight(key))
		}
	}
}

// keptFlows is how many flows that have nothing waiting are remembered for the turns that they have had.
const keptFlows = 1024

// move sets when the next turn of a flow begins.
func (f *flow) move(q *queue, begin float64) {
	idle := len(f.lines) == 0
	if idle {
		q.idle.Delete(f)
	}
	for p := range f.pools {
		p.turns.Delete(f)
	}
	f.begin = begin
	for p := range f.pools {
		p.turns.Set(f)
	}
	if idle {
		q.idle.Set(f)
	}
}

// next is the flow whose turn it is among those that have something for the taker, but for those up to passed; nil: none.
func (e *Engine) next(q *queue, t *taker, passed *flow) (found *flow) {
	e.open(q, t, func(p *pool) {
		var first *flow
		take := func(f *flow) bool {
			if first = f; f == passed {
				first = nil
			}
			return first == nil
		}
		if passed == nil {
			p.turns.Scan(take)
		} else {
			p.turns.Ascend(passed, take)
		}
		if first != nil && (found == nil || flowLess(first, found)) {
			found = first
		}
	})
	return found
}

// best is the first task for the taker, with its line: of the flow whose turn it is the one with the highest priority, then the longest in line
// (T2). A flow whose tasks the taker has no room for, by size or by key, lets the next one have the turn.
func (e *Engine) best(q *queue, t *taker) (l *line, at place) {
	for f := e.next(q, t, nil); f != nil; f = e.next(q, t, f) {
		if l, at = e.bestOf(f, q, t); l != nil {
			return l, at
		}
	}
	return nil, place{}
}

func (e *Engine) bestOf(f *flow, q *queue, t *taker) (found *line, first place) {
	e.open(q, t, func(p *pool) {
		up := f.pools[p]
		if up == nil {
			return
		}
		if l, at := e.firstOf(up, t); l != nil && (found == nil || placeLess(at, first)) {
			found, first = l, at
		}
	})
	return found, first
}

// firstOf is the first task of a lineup that the taker has room for.
func (e *Engine) firstOf(up *lineup, t *taker) (found *line, first place) {
	for { // what comes first must be known
		l, ok := up.lines.Min()
		if !ok {
			return nil, place{}
		}
		if !l.head.dry() {
			break
		}
		e.refillLine(l)
		e.settle(l)
	}
	looked := 0
	up.lines.Scan(func(l *line) bool {
		at, ok := e.pick(l, t)
		if ok && (found == nil || placeLess(at, first)) {
			found, first = l, at
		}
		looked++
		return found == nil && looked < mostPassed
	})
	return found, first
}
