package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// linesInTurn is among how many lines of a key unpark chooses those whose turn it is. If there are
// more, chance decides which, anew at the end of each lease.
var linesInTurn = 1000

// rota says which lines with parked tasks of a concurrency key unpark looks at next.
type rota struct {
	chosen []turnOfLine // by turn: the last one is next
	// When chosen is empty, choose refills chosen from these: if some is set, from any lines, which
	// nearly always are enough; then from the end of left; and then, if all is set, from all lines.
	some bool
	left []lease.Line
	all  bool

	atOnce int // how many lines unpark looks at before the queues have their turn
}

// begin makes unpark look at all lines, in an order that is decided anew.
func (r *rota) begin() { r.some, r.chosen = true, r.chosen[:0] }

// end frees what is not needed while unpark does not look at the key.
func (r *rota) end() { r.atOnce, r.left = 1, nil }

// next takes the line out of chosen whose turn it is.
func (r *rota) next() lease.Line {
	last := len(r.chosen) - 1
	line := r.chosen[last].line
	r.chosen = r.chosen[:last]
	return line
}

// choose puts the next lines of the key into chosen, at most linesInTurn; none if all have had
// their turn.
func (r *rota) choose(k *concurrencyKey) {
	for len(r.chosen) == 0 {
		switch rest := max(0, len(r.left)-linesInTurn); {
		case r.some:
			r.some, r.all = false, len(k.parked) > linesInTurn
			r.sort(k, maps.Keys(k.parked))
		case len(r.left) > 0:
			r.sort(k, slices.Values(r.left[rest:]))
			r.left = r.left[:rest]
		case r.all:
			r.all = false
			r.left = slices.AppendSeq(make([]lease.Line, 0, len(k.parked)), maps.Keys(k.parked))
		default:
			return
		}
	}
}

// sort puts the first linesInTurn of the lines that have parked tasks into chosen, which is empty.
func (r *rota) sort(k *concurrencyKey, lines iter.Seq[lease.Line]) {
	for line := range lines {
		l := k.parked[line]
		if l == nil {
			continue
		}
		if len(r.chosen) == linesInTurn {
			break
		}
		r.chosen = append(r.chosen, l.turn())
	}
	slices.SortFunc(r.chosen, func(a, b turnOfLine) int { return b.compare(&a) })
}

// turnOfLine says when a line of parked tasks has its turn: before those of queues that have no
// taker with room, or that had a grant later; in a queue by the turns of the flows, and in a flow
// by the places of the first tasks.
type turnOfLine struct {
	line      lease.Line
	hasTaker  bool
	lastGrant uint64
	begin     float64
	first     place
}

func (l *parkedLine) turn() turnOfLine {
	turn := turnOfLine{line: l.line}
	turn.first, _ = l.head.first()
	if q := l.key.space.queues[l.line.Queue]; q != nil {
		turn.hasTaker, turn.lastGrant, turn.begin = q.available.Len() > 0, q.lastGrant, q.virtual
		if f := q.flows[l.line.Fairness]; f != nil {
			turn.begin = f.begin
		}
	}
	return turn
}

// compare is negative if a line has its turn before another one.
func (t *turnOfLine) compare(other *turnOfLine) int {
	switch {
	case t.hasTaker && !other.hasTaker:
		return -1
	case other.hasTaker && !t.hasTaker:
		return 1
	}
	order := cmp.Or(cmp.Compare(t.lastGrant, other.lastGrant), cmp.Compare(t.begin, other.begin))
	switch {
	case order == 0 && placeLess(t.first, other.first):
		return -1
	case order == 0 && placeLess(other.first, t.first):
		return 1
	}
	return order
}
