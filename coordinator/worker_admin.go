package coordinator

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The calls of AdminService that are about one worker (W10).

// Waits of a worker that was thrown out.
const (
	kickedFor    = 5 * time.Second
	kickedAtMost = 24 * time.Hour
)

// maxShownTasks is how many tasks of a session are shown.
const maxShownTasks = 1000

// GetWorker shows the sessions of a worker.
func (s *adminService) GetWorker(ctx context.Context, req *lessorv1.GetWorkerRequest) (*lessorv1.GetWorkerResponse, error) {
	found, err := s.named(ctx, s.fields(), req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	res := &lessorv1.GetWorkerResponse{}
	for _, ss := range found {
		held, err := s.census.Holding(ctx, ss.id)
		if err != nil {
			return nil, refusal.Status(err)
		}
		w := ss.worker()
		w.Leases = uint32(len(held))
		for _, id := range held[:min(len(held), maxShownTasks)] {
			w.TaskIds = append(w.TaskIds, id.String())
		}
		res.Workers = append(res.Workers, w)
	}
	return res, nil
}

// DrainWorker asks a worker to end in order, or takes that back.
func (s *adminService) DrainWorker(ctx context.Context, req *lessorv1.DrainWorkerRequest) (*lessorv1.DrainWorkerResponse, error) {
	f := s.fields()
	d := &lessorv1.Drain{Reason: f.Text("reason", req.GetReason(), convert.MaxReason), Deadline: convert.Stamp(f.Wall("deadline", req.GetDeadline()))}
	if req.GetUndo() && (req.GetReason() != "" || req.GetDeadline() != nil) {
		f.Fail("undo", "is set beside a reason or a deadline, which belong to a drain")
	}
	found, err := s.named(ctx, f, req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	if req.GetUndo() {
		d = nil
	}
	for _, ss := range found {
		s.open.remember(lease.InstanceOf(ss.id), d)
	}
	res := &lessorv1.DrainWorkerResponse{}
	for _, ss := range s.sameInstances(found) { // also those that have opened meanwhile
		ss.setDrain(d)
		res.Workers = append(res.Workers, ss.worker())
	}
	return res, s.countLeases(ctx, res.GetWorkers())
}

// sameInstances are all sessions of the instances of which some sessions are.
func (s *adminService) sameInstances(some []*session) []*session {
	var all []*session
	instances := map[string]bool{}
	for _, ss := range some {
		instances[lease.InstanceOf(ss.id)] = true
	}
	for _, ss := range s.open.named(some[0].who.Tenant, some[0].info.GetName(), "") {
		if instances[lease.InstanceOf(ss.id)] {
			all = append(all, ss)
		}
	}
	return all
}

// KickWorker ends sessions of a worker.
func (s *adminService) KickWorker(ctx context.Context, req *lessorv1.KickWorkerRequest) (*lessorv1.KickWorkerResponse, error) {
	f := s.fields()
	reason := f.Text("reason", req.GetReason(), convert.MaxReason)
	away := f.Span("retry_after", req.GetRetryAfter())
	if away > kickedAtMost {
		f.Fail("retry_after", "is %v; the limit is %v", away, kickedAtMost)
	}
	if req.GetRetryAfter() == nil {
		away = kickedFor
	}
	found, err := s.named(ctx, f, req)
	if err != nil {
		return nil, refusal.Status(err)
	}
	res := &lessorv1.KickWorkerResponse{}
	for _, ss := range found {
		res.Workers = append(res.Workers, ss.worker())
	}
	if err := s.countLeases(ctx, res.GetWorkers()); err != nil {
		return nil, err
	}
	for _, ss := range found {
		if err := s.kick(ctx, ss, reason, away, req.GetRequeue()); err != nil {
			return nil, refusal.Status(err)
		}
	}
	return res, nil
}

// kick ends one session. Its leases end before, so that nothing that the worker still says can come in between.
func (s *adminService) kick(ctx context.Context, ss *session, reason string, away time.Duration, requeue bool) error {
	if requeue {
		why := "an operator took the worker's leases back"
		if reason != "" {
			why += ": " + reason
		}
		if err := s.revoker.Revoke(ctx, ss.who.Tenant, ss.id, why); err != nil {
			return err
		}
	}
	ss.logger().Warn("kicked by an operator", "reason", reason, "requeue", requeue)
	ss.reset(refusal.CodeKicked, "an operator ended the session: "+reason, away)
	return nil
}

// named finds the sessions that a request is about. f has read the other fields.
func (s *adminService) named(ctx context.Context, f *convert.Fields, req interface {
	GetWorkerId() string
	GetSessionId() string
},
) ([]*session, error) {
	worker, session := f.Required("worker_id", req.GetWorkerId()), f.ID("session_id", req.GetSessionId())
	if f.Err != nil {
		return nil, f.Err
	}
	note(ctx, "id", worker)
	found := s.open.named(identify(ctx).Tenant, worker, session)
	switch {
	case len(found) > 0:
		return found, nil
	case session != "":
		return nil, refusal.ErrNoSession
	}
	return nil, refusal.ErrNoWorker
}

// countLeases adds how many leases each of the workers holds. The error is a status.
func (s *adminService) countLeases(ctx context.Context, workers []*lessorv1.Worker) error {
	held, err := s.census.Holdings(ctx)
	if err != nil {
		return refusal.Status(err)
	}
	for _, w := range workers {
		w.Leases = uint32(held[w.GetSessionId()])
	}
	return nil
}

// revoker ends leases on behalf of an operator.
type revoker interface {
	// Revoke makes a session unknown to the engine and ends its leases.
	Revoke(ctx context.Context, tenant, session, detail string) error
}

// setDrain has the session take no new work, or take some again (nil), and tells the worker of a drain.
func (ss *session) setDrain(d *lessorv1.Drain) {
	ss.mu.Lock()
	news := d != nil && !proto.Equal(d, ss.drain)
	ss.drain = d
	tell := news && ss.state != handshaking // else register tells it
	ss.mu.Unlock()
	ss.resize()
	if tell {
		ss.out.drain(d)
	}
	if news || d == nil {
		ss.logger().Info("drain by an operator", "drain", d != nil, "reason", d.GetReason())
	}
}
