package coordinator

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// adminService serves operators.
type adminService struct {
	lessorv1.UnimplementedAdminServiceServer
	*edge
	open    *session.Registry
	noAuth  bool        // no credentials are required
	backup  atomic.Bool // a backup is under way
	started lease.Wall
}

// ListWorkers lists the open sessions of the caller's tenant, sorted by worker and session.
func (s *adminService) ListWorkers(ctx context.Context, req *lessorv1.ListWorkersRequest) (*lessorv1.ListWorkersResponse, error) {
	f := s.fields()
	queue := f.ID("queue", req.GetQueue())
	size := f.Items("page_size", req.GetPageSize(), defaultPage)
	tenant := gate.Identify(ctx).Tenant
	list := newListing("workers", tenant, &lessorv1.ListWorkersRequest{Queue: queue})
	after := list.cursor(f, req.GetPageToken())
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	held, err := s.engine.LeasesBySession(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
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

// workerKey returns a key that sorts sessions in the order of the list: by worker, then by session. The separator works because names hold no control
// characters.
func workerKey(w *lessorv1.Worker) string { return w.GetWorkerId() + "\x00" + w.GetSessionId() }

func takesFrom(w *lessorv1.Worker, queue string) bool {
	return queue == "" || slices.Contains(w.GetQueues(), queue)
}

// GetStatus describes the coordinator itself.
func (s *adminService) GetStatus(ctx context.Context, _ *lessorv1.GetStatusRequest) (*lessorv1.GetStatusResponse, error) {
	who := gate.Identify(ctx)
	tenant := who.Tenant
	live, err := s.engine.LiveLeases(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
	}
	unended, err := s.engine.Unended(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.GetStatusResponse{
		Version: s.cfg.Version, Epoch: s.engine.Epoch(), StartedAt: convert.Stamp(s.started), ServerTime: convert.Stamp(s.engine.Now().Wall),
		Leases: uint64(live), Sessions: uint32(s.open.CountOf(tenant)), StoreBytes: uint64(s.store.Stats().FileBytes), DiskFull: s.cfg.DiskFull(),
		Open: s.noAuth, Quotas: quotasProto(s.quotas.Usage(who.Caller()), unended),
	}, nil
}

// quotasProto converts limits and their use. unended is how many tasks of the tenant have not ended.
func quotasProto(all []quota.Use, unended uint64) []*lessorv1.Quota {
	shown := make([]*lessorv1.Quota, len(all))
	for i, u := range all {
		shown[i] = &lessorv1.Quota{Limit: u.Limit.String(), Of: u.Of, Value: u.Most, Used: uint64(u.Used)}
		if u.Limit == quota.Tasks {
			shown[i].Used = unended
		}
	}
	return shown
}
