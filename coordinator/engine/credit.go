package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// burden is what a lease takes of its holder's room, beside a slot.
type burden struct {
	typ   string
	key   string // concurrency key
	bytes uint64
}

// room is what a taker holds, by those things that it has limits for.
type room struct {
	leases map[lease.TaskID]burden
	types  map[string]uint32
	keys   map[string]uint32
	bytes  uint64
}

// choosy reports whether the taker looks at more than slots, and selective whether it does so at single tasks.
func (w *Wants) choosy() bool    { return len(w.TypeLimits) > 0 || w.selective() }
func (w *Wants) selective() bool { return w.SingleFlight || w.MaxBytes > 0 }

// takes reports whether tasks of a type are wanted now.
func (t *taker) takes(typ string) bool {
	if !t.wants.takes(typ) {
		return false
	}
	limit, limited := t.wants.TypeLimits[typ]
	return !limited || t.room.types[typ] < limit
}

// takes reports whether tasks of a type are wanted at all.
func (w *Wants) takes(typ string) bool { return len(w.Types) == 0 || slices.Contains(w.Types, typ) }

// suits reports whether there is room for a task of a type that is wanted. One that is larger than all that a taker may hold goes to it when
// it holds nothing else.
func (t *taker) suits(task *lease.Task, bytes uint64) bool {
	return !t.runs(task.Spec.ConcurrencyKey) && t.carries(bytes)
}

// carries reports whether there is room for so many bytes.
func (t *taker) carries(bytes uint64) bool {
	return t.wants.MaxBytes == 0 || t.room.bytes == 0 || t.room.bytes+bytes <= t.wants.MaxBytes
}

// runs reports whether the taker runs tasks of a concurrency key one at a time, and has one.
func (t *taker) runs(key string) bool {
	return t.wants.SingleFlight && key != "" && t.room.keys[key] > 0
}

// heft is how many bytes of payload and checkpoint a task has; its checkpoint counts as large as one can be.
func (e *Engine) heft(t *lease.Task) uint64 {
	n := uint64(t.Spec.Size)
	if t.HasCheckpoint {
		n += uint64(e.cfg.Limits.Checkpoint)
	}
	return n
}

// burden counts a lease against the limits of a taker that has any.
func (e *Engine) burden(t *taker, id lease.TaskID) {
	if !t.wants.choosy() {
		return
	}
	task := e.set.task(id)
	if task == nil {
		return
	}
	r := &t.room
	if r.leases == nil {
		*r = room{leases: map[lease.TaskID]burden{}, types: map[string]uint32{}, keys: map[string]uint32{}}
	}
	b := burden{typ: task.Spec.Type, key: task.Spec.ConcurrencyKey, bytes: e.heft(task)}
	r.leases[id] = b
	r.types[b.typ]++
	r.keys[b.key]++
	r.bytes += b.bytes
}

// unburden takes it back.
func (t *taker) unburden(id lease.TaskID) {
	r := &t.room
	b, ok := r.leases[id]
	if !ok {
		return
	}
	delete(r.leases, id)
	less(r.types, b.typ)
	less(r.keys, b.key)
	r.bytes -= b.bytes
}

func less(m map[string]uint32, k string) {
	if m[k]--; m[k] == 0 {
		delete(m, k)
	}
}

// reckon counts all leases anew, for limits that have changed.
func (e *Engine) reckon(t *taker) {
	t.room = room{}
	for id := range t.leases {
		e.burden(t, id)
	}
}

// mostPassed is how many tasks, or lines, a taker that has limits passes over in search of one that it has room for. Others take those that it
// passed.
const mostPassed = 64

// pick is the first task of a line that the taker has room for.
func (e *Engine) pick(l *line, t *taker) (at place, ok bool) {
	if !t.wants.selective() {
		return l.head.first()
	}
	looked := 0
	l.head.entries.Scan(func(p place) bool {
		task := e.set.task(lease.TaskID{Space: l.queue.space.number, Seq: p.seq})
		if task == nil || t.suits(task, e.heft(task)) { // one that is not there is for grantAt to clear away
			at, ok = p, true
		}
		looked++
		return !ok && looked < mostPassed
	})
	return at, ok
}
