package coordinator

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of a unary request for work.
const (
	maxWait = time.Minute
)

// workerService answers workers.
type workerService struct {
	lessorv1.UnimplementedWorkerServiceServer
	*edge
	streams *streams
}

// Session is one worker's stream.
func (s *workerService) Session(stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]) error {
	return s.streams.serve(stream)
}

// Lease grants waiting tasks. Its response is the hand-over (W5).
func (s *workerService) Lease(ctx context.Context, req *lessorv1.LeaseRequest) (*lessorv1.LeaseResponse, error) {
	r, bad := parseLease(req, identify(ctx).Tenant, s.cfg.Limits)
	if bad != nil {
		return nil, toStatus(bad)
	}
	note(ctx, "sender", r.Worker, "corr", r.Request)
	waiting, cancel := s.until(ctx)
	defer cancel()
	granted, err := s.engine.Lease(waiting, r)
	if err != nil {
		return nil, toStatus(err)
	}
	assignments, err := s.assignments(granted)
	if err != nil {
		return nil, toStatus(err)
	}
	note(ctx, "leases", len(assignments))
	return &lessorv1.LeaseResponse{Assignments: assignments}, nil
}

func parseLease(m *lessorv1.LeaseRequest, tenant string, l lease.Limits) (engine.LeaseRequest, *lease.FieldError) {
	f := fields{limits: l}
	r := engine.LeaseRequest{
		Wants: engine.Wants{
			Worker: f.required("worker_id", m.GetWorkerId()),
			Space:  engine.Space{Tenant: tenant, Workspace: f.workspace("workspace_id", m.GetWorkspaceId())},
			Queues: f.queues("queues", m.GetQueues()),
		},
		Max:     f.items("max_tasks", m.GetMaxTasks(), 1),
		Wait:    min(f.span("wait", m.GetWait()), maxWait),
		Request: f.id("request_id", m.GetRequestId()),
	}
	parseCapabilities(&f, "capabilities", m.GetCapabilities(), &r.Wants)
	return r, f.err
}

// intake is of the one report that a call carries.
func (s *workerService) intake() *intake { return &intake{limits: s.cfg.Limits} }

// Start tells that execution begins.
func (s *workerService) Start(ctx context.Context, req *lessorv1.StartRequest) (*lessorv1.StartResponse, error) {
	return judged(ctx, s.edge, parseStart(req, s.intake()), s.taskTokens.startResponse)
}

// Heartbeat renews a lease. Who is answered can read the progress that it told.
func (s *workerService) Heartbeat(ctx context.Context, req *lessorv1.HeartbeatRequest) (*lessorv1.HeartbeatResponse, error) {
	res, err := judged(ctx, s.edge, parseHeartbeat(req, s.intake()), s.taskTokens.heartbeatResponse)
	if res.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
		seen := make(chan struct{})
		s.feedProgress(identify(ctx).Tenant, req, func() { close(seen) })
		select {
		case <-seen:
		case <-ctx.Done(): // the lease is renewed; the caller has gone
		}
	}
	return res, err
}

// Complete reports success.
func (s *workerService) Complete(ctx context.Context, req *lessorv1.CompleteRequest) (*lessorv1.CompleteResponse, error) {
	return judged(ctx, s.edge, parseComplete(req, s.intake()), completeResponse)
}

// Fail reports failure.
func (s *workerService) Fail(ctx context.Context, req *lessorv1.FailRequest) (*lessorv1.FailResponse, error) {
	return judged(ctx, s.edge, parseFail(req, s.intake()), failResponse)
}

// Release gives a task back.
func (s *workerService) Release(ctx context.Context, req *lessorv1.ReleaseRequest) (*lessorv1.ReleaseResponse, error) {
	return judged(ctx, s.edge, parseRelease(req, s.intake()), releaseResponse)
}

// judged has one report judged and writes the verdict, which is a normal answer. An error is no verdict (section 3 of the contract).
func judged[Res any](ctx context.Context, e *edge, r *lease.Report, form func(lease.Now, *lease.Answer) *Res) (*Res, error) {
	noteReport(ctx, r)
	answers, err := e.engine.Say(ctx, identify(ctx).Tenant, []*lease.Report{r})
	if err != nil {
		return nil, toStatus(err)
	}
	a := &answers[0]
	if a.Verdict == lease.VerdictRejected {
		e.rejects.answer(ctx, identify(ctx).caller())
	}
	note(ctx, "verdict", a.Verdict.String(), "reason", a.Reason.String())
	return form(e.engine.Now(), a), nil
}

// noteReport puts who reports on what into the log, as far as it has the form.
func noteReport(ctx context.Context, r *lease.Report) {
	if _, ok := lease.ParseTaskID(r.TaskID); ok {
		note(ctx, "id", r.TaskID)
	}
	if r.Invalid == nil && r.Worker != "" {
		note(ctx, "sender", r.Worker)
	}
}

// malformedReports are the verdicts on reports that can not be read.
func malformedReports(e *edge) map[string]malformed {
	return map[string]malformed{
		"Start":     rejecting(e, startResponse),
		"Heartbeat": rejecting(e, heartbeatResponse),
		"Complete":  rejecting(e, completeResponse),
		"Fail":      rejecting(e, failResponse),
		"Release":   rejecting(e, releaseResponse),
	}
}

// rejecting is V1, which comes before anything that the engine knows.
func rejecting[Res any](e *edge, form func(lease.Now, *lease.Answer) *Res) malformed {
	return func(ctx context.Context, err *lease.FieldError) (any, error) {
		e.rejects.answer(ctx, identify(ctx).caller())
		a := &lease.Answer{Verdict: lease.VerdictRejected, Reason: lease.InvalidRequest, Detail: err.Error()}
		return form(e.engine.Now(), a), nil
	}
}
