package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// burden is what a lease takes of its holder's room, apart from a slot.
type burden struct {
	typ   string
	key   string // concurrency key
	bytes uint64
}

// room is what the leases of a taker with limits take in sum.
type room struct {
	leases map[lease.TaskID]burden
	types  map[string]uint32
	keys   map[string]uint32
	bytes  uint64
}

// choosy reports whether the taker has limits other than slots. selective reports whether it has limits that depend on the single task, so
// that it may take one task of a line and not another.
func (w *Wants) choosy() bool    { return len(w.TypeLimits) > 0 || w.selective() }
func (w *Wants) selective() bool { return w.SingleFlight || w.MaxBytes > 0 }

// takes reports whether the taker wants tasks of a type now: at all, and within its limit for the type.
func (t *taker) takes(typ string) bool {
	if !t.wants.takes(typ) {
		return false
	}
	limit, limited := t.wants.TypeLimits[typ]
	return !limited || t.room.types[typ] < limit
}

// takes reports whether tasks of a type are wanted, apart from limits.
func (w *Wants) takes(typ string) bool { return len(w.Types) == 0 || slices.Contains(w.Types, typ) }

// suits reports whether the taker has room for a task of a type that it wants. A task that is larger than MaxBytes suits a taker that holds
// nothing else.
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

// heft returns how many bytes of payload and checkpoint a task has. A checkpoint counts with the largest size that one may have.
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

// unburden undoes burden.
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

// reckon counts all leases of a taker anew, after its limits have changed.
func (e *Engine) reckon(t *taker) {
	t.room = room{}
	for id := range t.leases {
		e.burden(t, id)
	}
}

// mostPassed is how many tasks of a line, or lines of a lineup, are looked at for a taker that has no room for the first ones. The tasks that
// it passes over stay for other takers.
const mostPassed = 64

// pick returns the place of the first task of a line for which the taker has room.
func (e *Engine) pick(l *line, t *taker) (at place, ok bool) {
	if !t.wants.selective() {
		return l.head.first()
	}
	looked := 0
	l.head.entries.Scan(func(p place) bool {
		task := e.set.task(lease.TaskID{Space: l.queue.space.number, Seq: p.seq})
		if task == nil || t.suits(task, e.heft(task)) { // grantAt clears away an entry without a task
			at, ok = p, true
		}
		looked++
		return !ok && looked < mostPassed
	})
	return at, ok
}
