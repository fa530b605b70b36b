package service

import (
	"context"
	"slices"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/store"
)

// The calls of AdminService that are about workers (W10).

// maxShownTasks is how many tasks of a session GetWorker shows at most.
var maxShownTasks = 1000

// ListWorkers lists the open sessions of the caller's tenant, sorted by worker and session.
func (s *adminService) ListWorkers(
	ctx context.Context, req *lessorv1.ListWorkersRequest,
) (*lessorv1.ListWorkersResponse, error) {
	f := s.fields()
	queue := f.ID("queue", req.GetQueue())
	size := f.Items("page_size", req.GetPageSize(), defaultPage)
	tenant := gate.Identify(ctx).Tenant
	list := newListing("workers", tenant, &lessorv1.ListWorkersRequest{Queue: queue})
	after := list.cursor(f, req.GetPageToken())
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	held, err := s.Engine.LeasesBySession(ctx, tenant)
	if err != nil {
		return nil, refusal.Status(err)
	}
	res, page := &lessorv1.ListWorkersResponse{}, pageSize{most: size}
	var seen turn.Counter
	for _, w := range s.Sessions.List(tenant, held) {
		seen.Every(100)
		if workerKey(w) <= string(after) || !takesFrom(w, queue) {
			continue
		}
		if page.full() {
			res.NextPageToken = list.token([]byte(workerKey(res.Workers[page.items-1])))
			break
		}
		res.Workers = append(res.Workers, w)
		page.add(w)
	}
	return res, nil
}

// workerKey returns a key that sorts sessions in the order of the list: by worker, then by session.
// The separator works because names hold no control characters.
func workerKey(w *lessorv1.Worker) string { return w.GetWorkerId() + "\x00" + w.GetSessionId() }

func takesFrom(w *lessorv1.Worker, queue string) bool {
	return queue == "" || slices.Contains(w.GetQueues(), queue)
}

// GetWorker returns the sessions of a worker.
func (s *adminService) GetWorker(
	ctx context.Context, req *lessorv1.GetWorkerRequest,
) (*lessorv1.GetWorkerResponse, error) {
	name, err := parseWorkerName(ctx, s.fields(), req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	found, err := s.sessionsNamed(ctx, name)
	if err != nil {
		return nil, refusal.Status(err)
	}
	res := &lessorv1.GetWorkerResponse{Sessions: uint32(len(found))}
	page := pageSize{most: len(found)}
	for _, ss := range found {
		held, err := s.Engine.LeasesOf(ctx, gate.Identify(ctx).Tenant, ss.ID())
		if err != nil {
			return nil, refusal.Status(err)
		}
		w := ss.Worker()
		w.Leases = uint32(len(held))
		for _, id := range held[:min(len(held), maxShownTasks)] {
			w.TaskIds = append(w.TaskIds, id.String())
		}
		res.Workers = append(res.Workers, w)
		if page.add(w); page.full() {
			break
		}
	}
	return res, nil
}

// DrainWorker asks a worker to finish its tasks and take no new ones, or withdraws such a request.
func (s *adminService) DrainWorker(
	ctx context.Context, req *lessorv1.DrainWorkerRequest,
) (*lessorv1.DrainWorkerResponse, error) {
	f := s.fields()
	d := &lessorv1.Drain{
		Reason:   f.Text("reason", req.GetReason(), convert.MaxReason),
		Deadline: convert.Stamp(f.Wall("deadline", req.GetDeadline())),
	}
	if req.GetUndo() && (req.GetReason() != "" || req.GetDeadline() != nil) {
		f.Fail("undo", "cannot be set together with a reason or a deadline")
	}
	name, err := parseWorkerName(ctx, f, req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	found, held, err := s.sessionsToChange(ctx, name)
	if err != nil {
		return nil, refusal.Status(err)
	}
	if req.GetUndo() {
		d = nil
	}
	drained := s.Sessions.Drain(found, d, gate.Identify(ctx).Subject)
	return &lessorv1.DrainWorkerResponse{Workers: described(drained, held), Sessions: uint32(len(drained))}, nil
}

// namesWorker is a request about a worker, or one of its sessions.
type namesWorker interface {
	GetWorkerId() string
	GetSessionId() string
}

// workerName is the worker, and if it is not empty the session, that a request names.
type workerName struct{ worker, session string }

// parseWorkerName reads the name in a request. The caller has read the other fields with f;
// parseWorkerName returns their error too.
func parseWorkerName(ctx context.Context, f *convert.Fields, req namesWorker) (workerName, error) {
	name := workerName{f.Required("worker_id", req.GetWorkerId()), f.ID("session_id", req.GetSessionId())}
	if f.Err != nil {
		return name, f.Err
	}
	logFields(ctx, "id", name.worker)
	return name, nil
}

// sessionsNamed returns the sessions of that name, at least one.
func (s *adminService) sessionsNamed(ctx context.Context, name workerName) ([]*session.Session, error) {
	found := s.Sessions.Named(gate.Identify(ctx).Tenant, name.worker, name.session)
	switch {
	case len(found) > 0:
		return found, nil
	case name.session != "":
		return nil, refusal.ErrNoSession
	}
	return nil, refusal.ErrNoWorker
}

// sessionsToChange returns the sessions of that name, and how many leases each session of the
// tenant holds. What the caller does to the sessions next is in the audit (X4): sessionsToChange
// commits the entry before. It asks for the leases first: if the caller leaves meanwhile, nothing
// has changed yet, and there is no entry. While it waits for the engine, a worker may open another
// session, which must be among those found.
func (s *adminService) sessionsToChange(
	ctx context.Context, name workerName,
) (found []*session.Session, held map[string]int, err error) {
	if held, err = s.Engine.LeasesBySession(ctx, gate.Identify(ctx).Tenant); err != nil {
		return nil, nil, err
	}
	if found, err = s.sessionsNamed(ctx, name); err != nil {
		return nil, nil, err
	}
	if err := s.auditFirst(ctx); err != nil {
		return nil, nil, err
	}
	// if they are not found now, they have ended since the entry said what is done to them
	if now, err := s.sessionsNamed(ctx, name); err == nil {
		found = now
	}
	return found, held, nil
}

// auditFirst makes the audit entry of a call durable, before the call takes effect outside the
// store (X4).
func (s *adminService) auditFirst(ctx context.Context) error {
	return s.Engine.Keep(ctx, gate.Identify(ctx).Tenant, func(*store.Batch) {})
}

// described describes sessions and the number of their leases, as many as fit into a page.
func described(all []*session.Session, held map[string]int) (list []*lessorv1.Worker) {
	page := pageSize{most: len(all)}
	for _, ss := range all {
		if page.full() {
			break
		}
		w := ss.Worker()
		w.Leases = uint32(held[w.GetSessionId()])
		list = append(list, w)
		page.add(w)
	}
	return list
}
