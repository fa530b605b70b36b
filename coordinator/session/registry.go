package session

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
)

// Registry knows the open sessions, so that operators can list, drain and kick them.
type Registry struct {
	mu     sync.Mutex // guards the next three
	all    map[*Session]struct{}
	open   map[string]int // how many of them an instance has
	drains drains

	operations operations
	counters
}

// NewRegistry returns a registry without sessions.
func NewRegistry() *Registry {
	return &Registry{
		all: map[*Session]struct{}{}, open: map[string]int{}, drains: newDrains(),
		operations: operations{of: map[string][]*PackageOperation{}}, counters: newCounters(),
	}
}

// add adds an open session. It returns the drain that an operator asked of its instance before, or
// nil.
func (r *Registry) add(ss *Session) *lessorv1.Drain {
	r.mu.Lock()
	defer r.mu.Unlock()
	instance := lease.InstanceOf(ss.id)
	r.all[ss] = struct{}{}
	r.open[instance]++
	r.drains.expire(ss.who.Tenant) // or else remove would remember the drain for another hour
	d := r.drains.of(instance)
	if d != nil {
		r.drains.keep(ss.who.Tenant, instance, d, true)
	}
	return d
}

func (r *Registry) remove(ss *Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.all[ss]; !ok {
		return
	}
	instance := lease.InstanceOf(ss.id)
	delete(r.all, ss)
	if r.open[instance]--; r.open[instance] == 0 {
		delete(r.open, instance)
	}
	if d := r.drains.of(instance); d != nil {
		r.drains.keep(ss.who.Tenant, instance, d, r.open[instance] > 0)
	}
}

// Len returns how many sessions are open.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// List returns a tenant's sessions, sorted by worker and session. held is the number of live leases
// by session id.
func (r *Registry) List(tenant string, held map[string]int) []*lessorv1.Worker {
	var list []*lessorv1.Worker
	var seen turn.Counter // there may be thousands
	for _, ss := range r.ofTenant(tenant) {
		seen.Every(32)
		w := ss.Worker()
		w.Leases = uint32(held[w.GetSessionId()])
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *lessorv1.Worker) int {
		return cmp.Or(cmp.Compare(a.GetWorkerId(), b.GetWorkerId()), cmp.Compare(a.GetSessionId(), b.GetSessionId()))
	})
	return list
}

// Named returns the sessions of a worker, sorted by id. If id is not empty, it returns only the
// session with that id.
func (r *Registry) Named(tenant, worker, id string) []*Session {
	found := slices.DeleteFunc(r.ofTenant(tenant), func(ss *Session) bool {
		return ss.info.GetName() != worker || id != "" && ss.id != id
	})
	slices.SortFunc(found, func(a, b *Session) int { return cmp.Compare(a.id, b.id) })
	return found
}

// Filter selects sessions. An empty field selects all.
type Filter struct {
	Worker, Session, Queue, Workspace, Pool string
	Labels                                  map[string]string
}

// Select returns the registered sessions of a tenant that a filter selects, sorted by worker and
// id.
func (r *Registry) Select(tenant string, f Filter) []*Session {
	var seen turn.Counter
	found := slices.DeleteFunc(r.ofTenant(tenant), func(ss *Session) bool { seen.Every(100); return !ss.matches(f) })
	slices.SortFunc(found, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(a.info.GetName(), b.info.GetName()), cmp.Compare(a.id, b.id))
	})
	return found
}

func (ss *Session) matches(f Filter) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	selects := func(want, got string) bool { return want == "" || want == got }
	return ss.state != handshaking && selects(f.Worker, ss.info.GetName()) && selects(f.Session, ss.id) &&
		selects(f.Workspace, ss.wants.Space.Workspace) &&
		selects(f.Pool, ss.pool) && (f.Queue == "" || slices.Contains(ss.wants.Queues, f.Queue)) &&
		convert.HasLabels(ss.caps.GetLabels(), f.Labels)
}

// CountOf returns how many sessions of a tenant are open.
func (r *Registry) CountOf(tenant string) int { return len(r.ofTenant(tenant)) }

// Counts returns how many sessions are open, by tenant.
func (r *Registry) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[string]int{}
	for ss := range r.all {
		counts[ss.who.Tenant]++
	}
	return counts
}

func (r *Registry) ofTenant(tenant string) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*Session
	for ss := range r.all {
		if ss.who.Tenant == tenant {
			list = append(list, ss)
		}
	}
	return list
}

// healths counts the open sessions by their health.
func (r *Registry) healths() map[lessorv1.WorkerHealth]int {
	r.mu.Lock()
	all := make([]*Session, 0, len(r.all))
	for ss := range r.all {
		all = append(all, ss)
	}
	r.mu.Unlock()
	counts := map[lessorv1.WorkerHealth]int{}
	for _, ss := range all {
		counts[ss.currentHealth()]++
	}
	return counts
}
