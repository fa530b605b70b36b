package engine

import (
	"maps"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// binding keeps the tasks of an affinity key of a space on one worker (W12): the worker that got the latest grant of the key. It lasts while the key
// has live leases, and then for the TTL of the task whose lease ended last. A restart restores the binding from the live leases; a binding without
// live leases is lost.
type binding struct {
	worker string
	leases map[lease.TaskID]struct{} // live leases of the key
	end    *alarm                    // ends the binding; set while there are no leases
}

// updateBinding updates the binding of a task's affinity key after a change of the task.
func (e *Engine) updateBinding(c *lease.Change) {
	id, spec := c.Subject()
	if spec.Affinity == nil {
		return
	}
	s := e.spaces[id.Space]
	switch was, is := isLeased(c.Old), isLeased(c.New); {
	case is && !was:
		e.bind(s, spec.Affinity.Key, c.New)
	case was && !is:
		e.unbind(s, spec.Affinity, id)
	}
}

func (e *Engine) bind(s *space, key string, t *lease.Task) {
	b := s.bindings[key]
	if b == nil {
		b = &binding{leases: map[lease.TaskID]struct{}{}}
		s.bindings[key] = b
	}
	e.stopAlarm(b.end)
	b.leases[t.ID] = struct{}{}
	if b.worker != t.Lease.Worker {
		b.worker = t.Lease.Worker
		e.regroup(s, key)
	}
}

func (e *Engine) unbind(s *space, a *lease.Affinity, id lease.TaskID) {
	b := s.bindings[a.Key]
	if b == nil {
		return
	}
	if delete(b.leases, id); len(b.leases) > 0 {
		return
	}
	b.end = e.setAlarm(e.now.Serving.Add(a.TTL), func() {
		delete(s.bindings, a.Key)
		e.regroup(s, a.Key)
	})
}

// regroup moves the lines of an affinity key to the pools in which they belong now.
func (e *Engine) regroup(s *space, key string) {
	for _, l := range slices.Collect(maps.Keys(s.affinityLines[key])) {
		e.unlist(l)
		e.enlist(l)
		e.markForMatch(l.queue)
	}
}
