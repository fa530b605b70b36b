package engine

import (
	"maps"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// binding keeps the tasks of an affinity key of a space on one worker (W12): the worker that got the latest grant of the key. Once a STICKY task has bound
// the key, grants to other workers no longer move the binding: a PREFERRED task goes to another worker while its own has no room. The binding lasts while the
// worker has live leases of the key, and then for the TTL of the task whose lease ended last. A restart restores it from the live leases; without any it is
// lost.
type binding struct {
	worker string
	sticky bool
	held   map[string]int // number of live leases of the key, by worker; nil if there is none: a worker may have had tasks of a million keys
	end    *alarm         // ends the binding; set while the worker has no leases
}

// updateBinding updates the binding of a task's affinity key after a change of the task.
func (e *Engine) updateBinding(c *lease.Change) {
	id, spec := c.Subject()
	if spec.Affinity == nil {
		return
	}
	s := e.spaces.of(id)
	switch was, is := isLeased(c.Old), isLeased(c.New); {
	case is && !was:
		e.bind(s, c.New)
	case was && !is:
		e.unbind(s, spec.Affinity, c.Old.Lease.Worker)
	}
}

func (e *Engine) bind(s *space, t *lease.Task) {
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
	e.alarms.stop(b.end)
	b.sticky = b.sticky || a.Mode == lease.Sticky && t.Spec.Pinned() == "" // a pin takes a task to its worker in any case
	e.moveBinding(s, a.Key, worker)
}

func (e *Engine) moveBinding(s *space, key, worker string) {
	if b := s.bindings[key]; b.worker != worker {
		b.worker = worker
		e.lines.regroup(s, key)
	}
}

func (e *Engine) unbind(s *space, a *lease.Affinity, worker string) {
	b := s.bindings[a.Key]
	if b.held[worker]--; b.held[worker] > 0 {
		return
	}
	if delete(b.held, worker); len(b.held) == 0 {
		b.held = nil
	}
	if worker == b.worker {
		b.end = e.alarms.in(a.TTL, func() { e.endBinding(s, a.Key) })
	}
}

// endBinding ends the binding of a key to its worker. If another worker has live leases of the key, the key is bound to that one.
func (e *Engine) endBinding(s *space, key string) {
	b := s.bindings[key]
	if len(b.held) == 0 {
		delete(s.bindings, key)
		e.lines.regroup(s, key)
		return
	}
	b.sticky = false
	e.moveBinding(s, key, slices.Min(slices.Collect(maps.Keys(b.held))))
}
