package engine

import (
	"math"

	"github.com/lessor-dev/lessor/lease"
)

// unparksPerTurn is how many parked tasks are tried before a queue has its turn.
var unparksPerTurn = 1000

// unpark puts parked tasks of the keys that may have room back into their lines if they do: the
// first task of each line, because any of the lines may have no taker at present. When such a task
// is granted or removed, its key is looked at again. The lines whose turn it is come back first, as
// many as the key has room for, and then the queues have their turn: otherwise the tasks of all
// other lines would be parked once more at the end of each lease. unpark also ends after
// unparksPerTurn tasks: after a recovery there may be room under all keys of a large backlog.
func (e *Engine) unpark() {
	end := e.effort.after(unparksPerTurn)
	for k := range e.parking.toUnpark() {
		if e.effort.reached(end) {
			return
		}
		// Without room even for a task without a limit of its own, no task need be read.
		if k.state().Room(math.MaxUint32) && !e.unparkLines(k, end) {
			continue
		}
		e.parking.unparked(k)
	}
}

// unparkLines unparks the first task of each line of a key. done is false if it has stopped before,
// because it or unpark has tried enough tasks. If the key still has room then, it tries twice as
// many the next time.
func (e *Engine) unparkLines(k *concurrencyKey, end int) (done bool) {
	r := &k.rota
	if held := k.state(); held.Count > 0 {
		r.atOnce = max(r.atOnce, int(held.Limit-held.Count))
	}
	for most := r.atOnce; ; most-- {
		if len(r.chosen) == 0 {
			r.choose(k)
			e.effort.add(len(r.chosen) / looksPerTry)
		}
		switch {
		case len(r.chosen) == 0:
			return true
		case e.effort.reached(end):
			return false
		case most == 0:
			r.atOnce = min(2*r.atOnce, unparksPerTurn)
			return false
		}
		if l := k.parked[r.next()]; l != nil {
			e.unparkFirst(l)
		}
	}
}

func (e *Engine) unparkFirst(l *parkedLine) {
	e.effort.add(1)
	p, ok := e.parking.first(l)
	if !ok {
		return
	}
	k := l.key
	id := lease.TaskID{Space: k.space.number, Seq: p.seq}
	t := e.set.task(id)
	if t != nil && !k.state().Room(t.Spec.ConcurrencyLimit) {
		return
	}
	e.step(lease.Unpark{Task: id})
	e.parking.remove(l, p) // even if the index entry has no task: such an entry must not block the line
}
