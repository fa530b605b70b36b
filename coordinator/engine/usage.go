package engine

import (
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// leaseUsage is how much a lease uses of its holder's limits, apart from a slot.
type leaseUsage struct {
	typ   string
	key   string // concurrency key
	bytes uint64
}

// usage is how much all leases of a taker use of its limits. It is empty for a taker without
// limits.
type usage struct {
	leases map[lease.TaskID]leaseUsage
	types  map[string]uint32
	keys   map[string]uint32
	bytes  uint64
}

// hasLimits reports whether the taker has limits other than slots. limitsByTask reports whether it
// has limits that depend on the single task: then it may have room for one task of a line and not
// for another.
func (w *Wants) hasLimits() bool    { return len(w.TypeLimits) > 0 || w.limitsByTask() }
func (w *Wants) limitsByTask() bool { return w.SingleFlight || w.MaxBytes > 0 }

// takes reports whether the taker wants tasks of a type now: at all, and within its limit for the
// type.
func (t *taker) takes(typ string) bool {
	if !t.wants.handles(typ) {
		return false
	}
	limit, limited := t.wants.TypeLimits[typ]
	return !limited || t.used.types[typ] < limit
}

// handles reports whether tasks of a type are wanted, apart from limits.
func (w *Wants) handles(typ string) bool {
	_, found := slices.BinarySearch(w.Types, typ)
	return found || len(w.Types) == 0
}

// sorted returns the wants with the types and capabilities in order: handles is called for each
// pool that a grant looks at, and there may be a thousand types; and a task is compared with the
// capabilities of each of thousands of takers. It must not be called on the loop.
func (w Wants) sorted() Wants {
	for _, names := range []*[]string{
		&w.Types, &w.Capabilities.Runtimes, &w.Capabilities.Features, &w.Capabilities.Packages,
	} {
		if !slices.IsSorted(*names) {
			*names = slices.Sorted(slices.Values(*names))
		}
	}
	return w
}

// suits reports whether the taker's concurrency keys and bytes leave room for a task. A task that
// is larger than MaxBytes suits a taker that holds no other data.
func (t *taker) suits(task *lease.Task, bytes uint64) bool {
	return !t.keyTaken(task.Spec.ConcurrencyKey) && t.hasBytesFor(bytes)
}

// hasBytesFor reports whether the taker has room for a task with the given size.
func (t *taker) hasBytesFor(bytes uint64) bool {
	return t.wants.MaxBytes == 0 || t.used.bytes == 0 || t.used.bytes+bytes <= t.wants.MaxBytes
}

// keyTaken reports whether the taker runs tasks of a concurrency key one at a time, and has a task
// of this key already, as far as the engine or the taker knows.
func (t *taker) keyTaken(key string) bool {
	return t.wants.SingleFlight && key != "" && (t.used.keys[key] > 0 || t.refused.has(key))
}

// passedFor is how long a taker without room for the data of a task is given later tasks instead.
// Without an end, small tasks would keep a large one waiting for ever (T12).
const passedFor = 5 * time.Second

// roomFor is how long a taker that makes room waits for the end of one of its leases, before it is
// looked at whether it still has to.
const roomFor = time.Second

// mayPass reports whether a taker that is not suited by a READY task may be given a later one. The
// time is that of the serving clock: if the wall clock counted, after it was set back the task
// would be passed over until it is right again.
func (t *taker) mayPass(task *lease.Task, now lease.Instant) bool {
	return t.keyTaken(task.Spec.ConcurrencyKey) || now.Sub(task.ReadyAt) < passedFor
}

// makeRoom is called with the place of the task that a taker gets next. If the data of the task
// leave no room for it, the taker gets no other one until some of its leases have ended, and
// makeRoom returns true.
func (e *Engine) makeRoom(t *taker, l *line, at place) bool {
	task := e.set.task(lease.TaskID{Space: l.queue.space.number, Seq: at.seq})
	if task == nil || t.hasBytesFor(dataSize(task)) || e.parking.isFull(task) {
		return false
	}
	t.makesRoom = e.alarms.in(roomFor, func() {
		t.makesRoom = nil
		e.agenda.offer(t)
	})
	e.agenda.releasePreferred(t)
	return true
}

func (e *Engine) stopMakingRoom(t *taker) {
	e.alarms.stop(t.makesRoom)
	t.makesRoom = nil
}

// dataSize returns how many bytes of payload and checkpoint a task has at most.
func dataSize(t *lease.Task) uint64 { return uint64(t.Spec.Size + t.CheckpointBound()) }

// addUsage counts a lease against the limits of a taker that has any.
func (e *Engine) addUsage(t *taker, id lease.TaskID) {
	if !t.wants.hasLimits() {
		return
	}
	task, used := e.set.task(id), &t.used
	if used.leases == nil {
		*used = usage{leases: map[lease.TaskID]leaseUsage{}, types: map[string]uint32{}, keys: map[string]uint32{}}
	}
	l := leaseUsage{typ: task.Spec.Type, key: task.Spec.ConcurrencyKey, bytes: dataSize(task)}
	used.leases[id] = l
	used.types[l.typ]++
	used.keys[l.key]++
	used.bytes += l.bytes
}

// removeUsage undoes addUsage.
func (t *taker) removeUsage(id lease.TaskID) {
	used := &t.used
	l, ok := used.leases[id]
	if !ok {
		return
	}
	delete(used.leases, id)
	decrement(used.types, l.typ)
	decrement(used.keys, l.key)
	used.bytes -= l.bytes
}

func decrement(m map[string]uint32, k string) {
	if m[k]--; m[k] == 0 {
		delete(m, k)
	}
}

// recountUsage counts the usage of all leases of a taker again, after its limits have changed.
func (e *Engine) recountUsage(t *taker) {
	t.used = usage{}
	e.stopMakingRoom(t)
	for id := range t.leases {
		e.addUsage(t, id)
	}
}
