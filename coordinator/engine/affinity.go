package engine

import (
	"maps"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// binding keeps the tasks of an affinity key of a space on one worker (W12): the worker that got
// the latest grant of the key. Once a STICKY task has bound the key, grants to other workers no
// longer move the binding: a PREFERRED task goes to another worker while its own has no room. The
// binding lasts while the worker has live leases of the key, and then for the TTL of the task whose
// lease ended last. A restart restores it from the live leases; without any it is lost.
type binding struct {
	worker string
	sticky bool
	// held is the number of live leases of the key, by worker; nil if there is none: a worker may
	// have had tasks of a million keys.
	held map[string]int
	end  *alarm // ends the binding; set while the worker has no leases
}

// bindings binds the affinity keys of all spaces to workers, each in space.bindings. It belongs to
// the loop.
type bindings struct {
	spaces *spaces
	alarms *alarms
	lines  *lines
}

// of returns the binding of a task's affinity key, or nil.
func (bs *bindings) of(t *lease.Task) *binding {
	if t.Spec.Affinity == nil || t.Spec.Pinned() != "" {
		return nil
	}
	return bs.spaces.of(t.ID).bindings[t.Spec.Affinity.Key]
}

// update updates the binding of a task's affinity key after a change of the task.
func (bs *bindings) update(c *lease.Change) {
	id, spec := c.Subject()
	if spec.Affinity == nil {
		return
	}
	s := bs.spaces.of(id)
	switch was, is := isLeased(c.Old), isLeased(c.New); {
	case is && !was:
		bs.bind(s, c.New)
	case was && !is:
		bs.unbind(s, spec.Affinity, c.Old.Lease.Worker)
	}
}

func (bs *bindings) bind(s *space, t *lease.Task) {
	a, worker := t.Spec.Affinity, t.Lease.Worker
	b := s.bindings[a.Key]
	if b == nil {
		b = &binding{}
		s.bindings[a.Key] = b
	}
	if b.held == nil {
		b.held = map[string]int{}
	}
	b.held[worker]++
	if b.worker != worker && b.sticky {
		return
	}
	bs.alarms.stop(b.end)
	// a pin takes a task to its worker in any case
	b.sticky = b.sticky || a.Mode == lease.Sticky && t.Spec.Pinned() == ""
	bs.move(s, a.Key, worker)
}

func (bs *bindings) move(s *space, key, worker string) {
	if b := s.bindings[key]; b.worker != worker {
		b.worker = worker
		bs.lines.regroup(s, key)
	}
}

func (bs *bindings) unbind(s *space, a *lease.Affinity, worker string) {
	b := s.bindings[a.Key]
	if b.held[worker]--; b.held[worker] > 0 {
		return
	}
	if delete(b.held, worker); len(b.held) == 0 {
		b.held = nil
	}
	if worker == b.worker {
		b.end = bs.alarms.in(a.TTL, func() { bs.end(s, a.Key) })
	}
}

// end ends the binding of a key to its worker. If another worker has live leases of the key, the
// key is bound to that one.
func (bs *bindings) end(s *space, key string) {
	b := s.bindings[key]
	if len(b.held) == 0 {
		delete(s.bindings, key)
		bs.lines.regroup(s, key)
		return
	}
	b.sticky = false
	bs.move(s, key, slices.Min(slices.Collect(maps.Keys(b.held))))
}
