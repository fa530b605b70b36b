package engine

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// unparksPerTurn is how many parked tasks are tried before a queue has its turn.
var unparksPerTurn = 1000

// linesInTurn is among how many lines of a key unpark chooses those whose turn it is. If there are more, chance decides which, anew at the end of each lease.
var linesInTurn = 1000

// unpark puts parked tasks of the keys in toUnpark back into their lines if the keys have room: the first task of each line, because any of the lines
// may have no taker at present. When such a task is granted or removed, its key is added to toUnpark again. The lines whose turn it is come back first, as
// many as the key has room for, and then the queues have their turn: otherwise the tasks of all other lines would be parked once more at the end of each
// lease. unpark also ends after unparksPerTurn tasks: after a recovery there may be room under all keys of a large backlog.
func (e *Engine) unpark() {
	end := e.tried + unparksPerTurn
	e.toUnpark = shrunk(e.toUnpark, &e.mostToUnpark)
	for k := range e.toUnpark {
		if e.tried >= end {
			return
		}
		// Without room even for a task without a limit of its own, no task need be read.
		if k.state().Room(math.MaxUint32) && !e.unparkLines(k, end) {
			continue
		}
		k.atOnce, k.next = 1, nil
		delete(e.toUnpark, k)
		if len(k.holders) == 0 && len(k.parked) == 0 {
			delete(k.space.keys, k.key)
		}
	}
}

// unparkLines unparks the first task of each line of a key. done is false if it has stopped before, because it or unpark has tried enough tasks. If the key
// still has room then, it tries twice as many the next time.
func (e *Engine) unparkLines(k *concurrencyKey, end int) (done bool) {
	if held := k.state(); held.Count > 0 {
		k.atOnce = max(k.atOnce, int(held.Limit-held.Count))
	}
	for most := k.atOnce; ; {
		for len(k.inTurn) > 0 {
			switch {
			case e.tried >= end:
				return false
			case most == 0:
				k.atOnce = min(2*k.atOnce, unparksPerTurn)
				return false
			}
			most--
			line := k.inTurn[len(k.inTurn)-1].line
			k.inTurn = k.inTurn[:len(k.inTurn)-1]
			if h := k.parked[line]; h != nil {
				e.unparkFirst(k, line, h)
			}
		}
		switch rest := max(0, len(k.next)-linesInTurn); {
		case k.news:
			k.news, k.around = false, len(k.parked) > linesInTurn
			k.sortByTurn(maps.Keys(k.parked))
		case len(k.next) > 0:
			k.sortByTurn(slices.Values(k.next[rest:]))
			k.next = k.next[:rest]
		case k.around:
			k.around = false
			k.next = slices.AppendSeq(make([]lease.Line, 0, len(k.parked)), maps.Keys(k.parked))
		default:
			return true
		}
		e.tried += len(k.inTurn) / looksPerTry
	}
}

func (e *Engine) unparkFirst(k *concurrencyKey, line lease.Line, h *head[place]) {
	e.tried++
	p, ok := e.firstParked(k, line, h)
	if !ok {
		return
	}
	id := lease.TaskID{Space: k.space.number, Seq: p.seq}
	t := e.set.task(id)
	if t != nil && !k.state().Room(t.Spec.ConcurrencyLimit) {
		return
	}
	e.step(lease.Unpark{Task: id})
	e.removeParked(k, line, h, p) // even if the index entry has no task: such an entry must not block the line
}

// turnOfLine says when a line of parked tasks has its turn: before those of queues that have no taker with room, or that had a grant later; in a queue by the
// turns of the flows, and in a flow by the places of the first tasks.
type turnOfLine struct {
	line      lease.Line
	hasTaker  bool
	lastGrant uint64
	begin     float64
	first     place
}

// sortByTurn puts the first linesInTurn of the lines that have parked tasks into inTurn; the last one has its turn first.
func (k *concurrencyKey) sortByTurn(lines iter.Seq[lease.Line]) {
	for line := range lines {
		h := k.parked[line]
		if h == nil {
			continue
		}
		if len(k.inTurn) == linesInTurn {
			break
		}
		turn := turnOfLine{line: line}
		turn.first, _ = h.first()
		if q := k.space.queues[line.Queue]; q != nil {
			turn.hasTaker, turn.lastGrant, turn.begin = q.available.Len() > 0, q.lastGrant, q.virtual
			if f := q.flows[line.Fairness]; f != nil {
				turn.begin = f.begin
			}
		}
		k.inTurn = append(k.inTurn, turn)
	}
	slices.SortFunc(k.inTurn, func(a, b turnOfLine) int { return b.compare(&a) })
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
