package coordinator

import (
	"cmp"
	"slices"
	"sync"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// sessions is the register of open sessions, for those who ask who is there.
type sessions struct {
	mu  sync.Mutex
	all map[*session]struct{}
}

func newSessions() *sessions { return &sessions{all: map[*session]struct{}{}} }

func (r *sessions) add(ss *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[ss] = struct{}{}
}

func (r *sessions) remove(ss *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, ss)
}

// Len is how many sessions are open.
func (r *sessions) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// List shows a tenant's sessions, by worker and session; held is the number of leases of each session.
func (r *sessions) List(tenant string, held map[string]int) []*lessorv1.Worker {
	var list []*lessorv1.Worker
	for _, ss := range r.of(tenant) {
		w := ss.worker()
		w.Leases = uint32(held[w.GetSessionId()])
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *lessorv1.Worker) int {
		return cmp.Or(cmp.Compare(a.GetWorkerId(), b.GetWorkerId()), cmp.Compare(a.GetSessionId(), b.GetSessionId()))
	})
	return list
}

func (r *sessions) of(tenant string) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*session
	for ss := range r.all {
		if ss.who.Tenant == tenant {
			list = append(list, ss)
		}
	}
	return list
}

// worker shows the session as operators see it.
func (ss *session) worker() *lessorv1.Worker {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	states := map[sessionState]lessorv1.WorkerState{
		handshaking: lessorv1.WorkerState_WORKER_STATE_HANDSHAKING, registered: lessorv1.WorkerState_WORKER_STATE_REGISTERED,
		heartbeating: lessorv1.WorkerState_WORKER_STATE_HEARTBEATING, draining: lessorv1.WorkerState_WORKER_STATE_DRAINING,
	}
	return &lessorv1.Worker{
		WorkerId: ss.info.GetName(), SessionId: ss.id, Info: ss.info, State: states[ss.state], Capabilities: ss.caps,
		WorkspaceId: ss.wants.Space.Workspace, Queues: ss.wants.Queues,
		ConnectedAt: stamp(ss.connected), LastSeenAt: stamp(ss.seen), Healthy: ss.healthy, Metrics: ss.metrics,
	}
}
