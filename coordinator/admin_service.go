package coordinator

import (
	"context"
	"slices"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// adminService answers operators.
type adminService struct {
	lessorv1.UnimplementedAdminServiceServer
	*edge
	census  census
	open    *sessions
	started lease.Wall
}

// census counts live leases.
type census interface {
	// Live is how many there are.
	Live(context.Context) (int, error)
	// Holdings is how many each session holds.
	Holdings(context.Context) (map[string]int, error)
}

// ListQueues shows the queues of a workspace by name.
func (s *adminService) ListQueues(ctx context.Context, req *lessorv1.ListQueuesRequest) (*lessorv1.ListQueuesResponse, error) {
	f := s.fields()
	space := engine.Space{Tenant: identify(ctx).Tenant, Workspace: f.workspace("workspace_id", req.GetWorkspaceId())}
	size := f.items("page_size", req.GetPageSize(), defaultPage)
	list := newListing("queues", space.Tenant, &lessorv1.ListQueuesRequest{WorkspaceId: space.Workspace})
	after := list.cursor(f, req.GetPageToken())
	if f.err != nil {
		return nil, toStatus(f.err)
	}
	found, err := s.engine.Queues(ctx, space, string(after), size+1)
	if err != nil {
		return nil, toStatus(err)
	}
	res := &lessorv1.ListQueuesResponse{}
	if len(found) > size {
		found = found[:size]
		res.NextPageToken = list.token([]byte(found[size-1].Name))
	}
	for i := range found {
		res.Queues = append(res.Queues, queueProto(space.Workspace, &found[i]))
	}
	return res, nil
}

func queueProto(workspace string, q *engine.QueueInfo) *lessorv1.Queue {
	return &lessorv1.Queue{
		Name: q.Name, WorkspaceId: workspace, Ready: q.Ready, Scheduled: q.Scheduled, Leased: q.Leased, CreatedAt: stamp(q.CreatedAt),
	}
}

// ListWorkers shows the open sessions of the tenant by worker and session.
func (s *adminService) ListWorkers(ctx context.Context, req *lessorv1.ListWorkersRequest) (*lessorv1.ListWorkersResponse, error) {
	f := s.fields()
	queue := f.id("queue", req.GetQueue())
	size := f.items("page_size", req.GetPageSize(), defaultPage)
	tenant := identify(ctx).Tenant
	list := newListing("workers", tenant, &lessorv1.ListWorkersRequest{Queue: queue})
	after := list.cursor(f, req.GetPageToken())
	if f.err != nil {
		return nil, toStatus(f.err)
	}
	held, err := s.census.Holdings(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	res := &lessorv1.ListWorkersResponse{}
	for _, w := range s.open.List(tenant, held) {
		if workerKey(w) <= string(after) || !takesFrom(w, queue) {
			continue
		}
		if len(res.Workers) == size {
			res.NextPageToken = list.token([]byte(workerKey(res.Workers[size-1])))
			break
		}
		res.Workers = append(res.Workers, w)
	}
	return res, nil
}

// workerKey orders sessions as the list does: by worker, then session. Names hold no control characters.
func workerKey(w *lessorv1.Worker) string { return w.GetWorkerId() + "\x00" + w.GetSessionId() }

func takesFrom(w *lessorv1.Worker, queue string) bool {
	return queue == "" || slices.Contains(w.GetQueues(), queue)
}

// GetStatus shows the coordinator itself.
func (s *adminService) GetStatus(ctx context.Context, _ *lessorv1.GetStatusRequest) (*lessorv1.GetStatusResponse, error) {
	live, err := s.census.Live(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	return &lessorv1.GetStatusResponse{
		Version: s.cfg.Version, Epoch: s.engine.Epoch(), StartedAt: stamp(s.started), ServerTime: stamp(s.engine.Now().Wall),
		Leases: uint64(live), Sessions: uint32(s.open.Len()), StoreBytes: uint64(s.store.Stats().FileBytes),
		Open: true, // until credentials can be configured
	}, nil
}
