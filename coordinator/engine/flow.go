package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// flow is the part of a queue with one fairness key. Flows take turns (T12): each turn of a flow begins at a point of the queue's virtual
// time, and the next one 1/weight later; the flow whose turn begins first is next. A flow that had nothing waiting has saved nothing up:
// its turn begins at the present virtual time, which is why one with a million tasks delays another's single task by one turn.
type flow struct {
	key   string
	begin float64          // of its next turn, in virtual time
	lines map[string]*line // by type
}

func flowLess(a, b *flow) bool {
	if a.begin != b.begin {
		return a.begin < b.begin
	}
	return a.key < b.key
}

// turns are the flows of a queue that have a task of one type waiting, the next one first.
type turns = btree.BTreeG[*flow]

func newTurns() *turns { return btree.NewBTreeGOptions(flowLess, btree.Options{NoLocks: true}) }

// line finds the line of a kind of task or makes it.
func (q *queue) line(kind lease.Line) *line {
	f := q.flows[kind.Fairness]
	if f == nil {
		q.virtual += 1.0 / keptFlows // else a stream of new keys would hold up the others for ever
		f = &flow{key: kind.Fairness, begin: q.virtual, lines: map[string]*line{}}
		q.flows[kind.Fairness] = f
	}
	l := f.lines[kind.Type]
	if l == nil {
		q.idle.Delete(f)
		l = &line{kind: kind, queue: q, flow: f, head: newHead(lineHead, placeLess)}
		f.lines[kind.Type] = l
	}
	return l
}

// enlist puts a line that holds a task, or may do so, where a taker finds it.
func (l *line) enlist() {
	if l.listed {
		return
	}
	l.listed = true
	l.queue.waiting++
	t := l.queue.types[l.kind.Type]
	if t == nil {
		t = newTurns()
		l.queue.types[l.kind.Type] = t
	}
	t.Set(l.flow)
}

// settle takes a line that has become empty out of the turns. Its memory goes too, unless it is one of the few that come back with the next
// task; the flow goes once it has no turn ahead of it that it has taken already.
func (l *line) settle() {
	if !l.listed || !l.head.empty() {
		return
	}
	l.listed = false
	q := l.queue
	q.waiting--
	t := q.types[l.kind.Type]
	t.Delete(l.flow)
	if t.Len() == 0 && len(q.types) > keptTypes {
		delete(q.types, l.kind.Type)
	}
	if l.kind.Fairness != "" || len(l.flow.lines) > keptTypes {
		delete(l.flow.lines, l.kind.Type)
	}
	if len(l.flow.lines) == 0 {
		q.idle.Set(l.flow)
	}
}

// keptTypes is how many types of a queue stay known while none of their tasks waits.
const keptTypes = 16

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

// keptFlows is how many flows that have nothing waiting are remembered for the turns that they have had.
const keptFlows = 1024

// move sets when the next turn of a flow begins.
func (f *flow) move(q *queue, begin float64) {
	idle := len(f.lines) == 0
	if idle {
		q.idle.Delete(f)
	}
	for _, l := range f.lines {
		if l.listed {
			q.types[l.kind.Type].Delete(f)
		}
	}
	f.begin = begin
	for _, l := range f.lines {
		if l.listed {
			q.types[l.kind.Type].Set(f)
		}
	}
	if idle {
		q.idle.Set(f)
	}
}

// next is the flow whose turn it is among those that have something for the taker, or nil.
func (q *queue) next(t *taker) *flow {
	var found *flow
	look := func(all *turns) {
		if all == nil {
			return
		}
		if f, ok := all.Min(); ok && (found == nil || flowLess(f, found)) {
			found = f
		}
	}
	if len(t.wants.Types) > 0 {
		for _, typ := range t.wants.Types {
			look(q.types[typ])
		}
		return found
	}
	for _, all := range q.types {
		look(all)
	}
	return found
}

// best is the line that holds the first task for the taker: of the flow whose turn it is the one with the highest priority, then the longest
// in line (T2).
func (e *Engine) best(q *queue, t *taker) *line {
	for {
		f := q.next(t)
		if f == nil {
			return nil
		}
		if l := e.bestOf(f, t); l != nil {
			return l
		} // else all that seemed to wait there is gone
	}
}

func (e *Engine) bestOf(f *flow, t *taker) *line {
	var found *line
	var first place
	for _, l := range f.lines {
		if !l.listed || !t.wants.takes(l.kind.Type) {
			continue
		}
		if l.head.dry() {
			e.refillLine(l)
		}
		p, ok := l.head.first()
		if !ok {
			l.settle()
			continue
		}
		if found == nil || placeLess(p, first) {
			found, first = l, p
		}
	}
	return found
}
