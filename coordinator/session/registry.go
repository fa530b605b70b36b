package session

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
)

// Registry knows the open sessions, so that operators can list, drain and kick them.
type Registry struct {
	mu     sync.Mutex
	all    map[*Session]struct{}
	open   map[string]int              // how many of them an instance has
	drains map[string]*rememberedDrain // by instance
	ended  map[string]*list.List       // by tenant: the instances without a stream that have a drain, the first to expire first

	operations operations
	counters
}

// rememberedDrain is the drain that an operator asked of an instance. It outlives the stream. Otherwise the worker would get work again as soon
// as it connects again.
type rememberedDrain struct {
	tenant string
	drain  *lessorv1.Drain
	until  time.Time     // when it expires; zero while a stream of the instance is open
	place  *list.Element // in Registry.ended; nil while a stream of the instance is open
}

// drainMemory is how long a drain is remembered after the last stream of its instance has ended. maxDrains is how many instances of a tenant that have no
// stream may have one, so that instances which come, are drained and go do not fill the memory. The oldest are forgotten first.
const (
	drainMemory = time.Hour
	maxDrains   = 100_000
)

// NewRegistry returns a registry without sessions.
func NewRegistry() *Registry {
	return &Registry{
		all: map[*Session]struct{}{}, open: map[string]int{}, drains: map[string]*rememberedDrain{}, ended: map[string]*list.List{},
		operations: operations{of: map[string][]*PackageOperation{}}, counters: newCounters(),
	}
}

// add adds an open session. It returns the drain that an operator asked of its instance before, or nil.
func (r *Registry) add(ss *Session) *lessorv1.Drain {
	r.mu.Lock()
	defer r.mu.Unlock()
	instance := lease.InstanceOf(ss.id)
	r.all[ss] = struct{}{}
	r.open[instance]++
	r.forgetExpired(ss.who.Tenant) // or else remove would remember the drain for another hour
	d := r.drains[instance]
	if d == nil {
		return nil
	}
	r.keepDrain(ss.who.Tenant, instance, d.drain) // a stream is open now
	return d.drain
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
	if d := r.drains[instance]; d != nil {
		r.keepDrain(ss.who.Tenant, instance, d.drain)
	}
}

// keepDrain keeps the drain of an instance: for drainMemory if no stream of the instance is open.
func (r *Registry) keepDrain(tenant, instance string, d *lessorv1.Drain) {
	r.forgetDrain(instance)
	kept := &rememberedDrain{tenant: tenant, drain: d}
	r.drains[instance] = kept
	if r.open[instance] > 0 {
		return
	}
	of := r.ended[tenant]
	if of == nil {
		of = list.New()
		r.ended[tenant] = of
	}
	kept.until, kept.place = time.Now().Add(drainMemory), of.PushBack(instance)
	if of.Len() > maxDrains {
		r.forgetDrain(of.Front().Value.(string))
	}
}

// forgetDrain forgets the drain of an instance, if there is one.
func (r *Registry) forgetDrain(instance string) {
	d := r.drains[instance]
	if d == nil {
		return
	}
	delete(r.drains, instance)
	if d.place == nil {
		return
	}
	if of := r.ended[d.tenant]; of.Len() == 1 {
		delete(r.ended, d.tenant)
	} else {
		of.Remove(d.place)
	}
}

// forgetExpired forgets the drains of a tenant that have expired.
func (r *Registry) forgetExpired(tenant string) {
	for r.ended[tenant] != nil {
		first := r.ended[tenant].Front().Value.(string)
		if !time.Now().After(r.drains[first].until) {
			return
		}
		r.forgetDrain(first)
	}
}

// rememberDrain remembers the drain that an operator asked of an instance of a tenant; a nil d forgets it.
func (r *Registry) rememberDrain(tenant, instance string, d *lessorv1.Drain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetExpired(tenant)
	if d == nil {
		r.forgetDrain(instance)
		return
	}
	r.keepDrain(tenant, instance, d) // the streams of the instance may have ended since the caller listed them
}

// drainOf returns the drain that is remembered of an instance with an open stream, or nil.
func (r *Registry) drainOf(instance string) *lessorv1.Drain {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.drains[instance]; d != nil {
		return d.drain
	}
	return nil
}

// Len returns how many sessions are open.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// List returns a tenant's sessions, sorted by worker and session. held is the number of live leases by session id.
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

// Named returns the sessions of a worker, sorted by id. If id is not empty, it returns only the session with that id.
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

// Select returns the registered sessions of a tenant that a filter selects, sorted by worker and id.
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
	return ss.state != handshaking && selects(f.Worker, ss.info.GetName()) && selects(f.Session, ss.id) && selects(f.Workspace, ss.wants.Space.Workspace) &&
		selects(f.Pool, ss.pool) && (f.Queue == "" || slices.Contains(ss.wants.Queues, f.Queue)) && convert.HasLabels(ss.caps.GetLabels(), f.Labels)
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

func (ss *Session) currentHealth() lessorv1.WorkerHealth {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	health, _ := ss.shownHealth()
	return health
}

// shownHealth returns the health of the worker for operators, and why it is so. A worker that gets no work because it was silent until a lease ended (W5, W9)
// is DEGRADED, even if no heartbeat is due yet.
func (ss *Session) shownHealth() (health lessorv1.WorkerHealth, why string) {
	if ss.health.takesWork() && ss.awaitsFrame.Load() {
		return lessorv1.WorkerHealth_WORKER_HEALTH_DEGRADED, "it was silent until one of its leases ended: no new work until it sends a frame"
	}
	health = ss.health.status()
	return health, ss.health.reason(health)
}

var workerStates = map[sessionState]lessorv1.WorkerState{
	handshaking: lessorv1.WorkerState_WORKER_STATE_HANDSHAKING, registered: lessorv1.WorkerState_WORKER_STATE_REGISTERED,
	heartbeating: lessorv1.WorkerState_WORKER_STATE_HEARTBEATING, draining: lessorv1.WorkerState_WORKER_STATE_DRAINING,
}

// ID returns the id of the session.
func (ss *Session) ID() string { return ss.id }

// Worker returns what operators see of the session.
func (ss *Session) Worker() *lessorv1.Worker {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	state := ss.state
	if (ss.health.drains || ss.drain != nil) && state != handshaking {
		state = draining
	}
	health, why := ss.shownHealth()
	return &lessorv1.Worker{
		WorkerId: ss.info.GetName(), SessionId: ss.id, Info: ss.info, State: workerStates[state], Capabilities: ss.caps,
		WorkspaceId: ss.wants.Space.Workspace, Queues: ss.wants.Queues, PoolId: ss.pool,
		ConnectedAt: convert.Stamp(ss.connected), LastSeenAt: convert.Stamp(ss.seen), Healthy: !ss.health.unhealthy, Metrics: ss.health.metrics,
		Health: health, HealthDetail: why, MissedHeartbeats: uint32(ss.health.missed), Drain: ss.drain,
		Packages: ss.packages.list(), InstallsPackages: ss.installs,
	}
}
