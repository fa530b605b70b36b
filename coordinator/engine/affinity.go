package engine

import (
	"maps"
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// binding keeps the tasks of an affinity key of a space on one worker (W12): the one that was granted the last of them, while it holds a lease of
// the key, and for the TTL of the last one that ended. It is derived from live leases, and so survives a restart as they do; the TTL does not.
type binding struct {
	worker string
	leases map[lease.TaskID]struct{}
	end    *alarm // while there are none
}

// tie takes a change of a task with an affinity key into account.
func (e *Engine) tie(c *lease.Change) {
	id, spec := about(c)
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
	b := s.bound[key]
	if b == nil {
		b = &binding{leases: map[lease.TaskID]struct{}{}}
		s.bound[key] = b
	}
	e.silence(b.end)
	b.leases[t.ID] = struct{}{}
	if b.worker != t.Lease.Worker {
		b.worker = t.Lease.Worker
		e.regroup(s, key)
	}
}

func (e *Engine) unbind(s *space, a *lease.Affinity, id lease.TaskID) {
	b := s.bound[a.Key]
	if b == nil {
		return
	}
	if delete(b.leases, id); len(b.leases) > 0 {
		return
	}
	b.end = e.alarm(e.now.Serving.Add(a.TTL), func() {
		delete(s.bound, a.Key)
		e.regroup(s, a.Key)
	})
}

// regroup moves the lines of a key to where they belong now.
func (e *Engine) regroup(s *space, key string) {
	for _, l := range slices.Collect(maps.Keys(s.kin[key])) {
		e.unlist(l)
		e.enlist(l)
		e.stir(l.queue)
	}
}
