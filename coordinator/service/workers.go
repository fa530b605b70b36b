package service

import (
	"context"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// workerService serves workers.
type workerService struct {
	lessorv1.UnimplementedWorkerServiceServer
	*shared
	streams *session.Server
}

// Session serves one worker's stream.
func (s *workerService) Session(
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse],
) error {
	return s.streams.Serve(stream, opener(stream.Context()))
}

// opener returns the caller who opens a stream, with the credentials used.
func opener(ctx context.Context) session.Caller {
	token, certified := gate.Credentials(ctx)
	return session.Caller{Identity: gate.Identify(ctx).Identity, Token: token, Certified: certified}
}

// Lease grants waiting tasks. The response delivers them to the worker (W5).
func (s *workerService) Lease(ctx context.Context, req *lessorv1.LeaseRequest) (*lessorv1.LeaseResponse, error) {
	r, bad := convert.ParseLease(req, gate.Identify(ctx).Tenant, s.Limits)
	if bad != nil {
		return nil, refusal.Status(bad)
	}
	logFields(ctx, "sender", r.Worker, "corr", r.Request)
	waiting, cancel := s.untilStop(ctx)
	defer cancel()
	res := &lessorv1.LeaseResponse{}
	r.Deliver = func(granted []engine.Granted) (err error) {
		if err = sendlimit.PlaceOf(ctx).Take(waiting); err != nil {
			return err
		}
		res.Assignments, err = s.assignments(gate.Identify(ctx).Credential, granted)
		return err
	}
	if _, err := s.Engine.Lease(waiting, r); err != nil {
		return nil, refusal.Status(err)
	}
	logFields(ctx, "leases", len(res.GetAssignments()))
	return res, nil
}

// intake returns an intake for the single report of a unary call.
func (s *workerService) intake() *convert.Intake { return convert.NewIntake(s.Limits, 0, 0) }

// tokens returns the issuer of the task tokens for the caller.
func (s *workerService) tokens(ctx context.Context) convert.Tokens {
	return s.Assigner.Tokens.For(gate.Identify(ctx).HoldsUnder())
}

// Start reports that execution begins.
func (s *workerService) Start(ctx context.Context, req *lessorv1.StartRequest) (*lessorv1.StartResponse, error) {
	return judged(ctx, s.shared, convert.ParseStart(req, s.intake()), s.tokens(ctx).StartResponse)
}

// Heartbeat renews a lease. When the call returns, the progress in the heartbeat can be read.
// Unlike the renewal, the progress is not durable.
func (s *workerService) Heartbeat(
	ctx context.Context, req *lessorv1.HeartbeatRequest,
) (*lessorv1.HeartbeatResponse, error) {
	var news []engine.Feed
	if progress, ok := convert.HeartbeatFeed(req); ok {
		news = append(news, progress)
	}
	return judged(ctx, s.shared, convert.ParseHeartbeat(req, s.intake()), s.tokens(ctx).HeartbeatResponse, news...)
}

// Complete reports success.
func (s *workerService) Complete(
	ctx context.Context, req *lessorv1.CompleteRequest,
) (*lessorv1.CompleteResponse, error) {
	return judged(ctx, s.shared, convert.ParseComplete(req, s.intake()), convert.CompleteResponse)
}

// Fail reports failure.
func (s *workerService) Fail(ctx context.Context, req *lessorv1.FailRequest) (*lessorv1.FailResponse, error) {
	return judged(ctx, s.shared, convert.ParseFail(req, s.intake()), convert.FailResponse)
}

// Release gives a task back.
func (s *workerService) Release(ctx context.Context, req *lessorv1.ReleaseRequest) (*lessorv1.ReleaseResponse, error) {
	return judged(ctx, s.shared, convert.ParseRelease(req, s.intake()), convert.ReleaseResponse)
}

// judged lets the engine judge one report, with the news that comes with it, and returns the
// verdict as a normal answer. If it returns an error, there is no verdict, and the worker may send
// the report again.
func judged[Res any](
	ctx context.Context, sh *shared, r *lease.Report, form func(lease.Now, *lease.Answer) *Res, news ...engine.Feed,
) (*Res, error) {
	noteReport(ctx, r)
	answers, err := sh.Engine.Judge(ctx, gate.Identify(ctx).Tenant, []*lease.Report{r}, news...)
	if err != nil {
		return nil, refusal.Status(err)
	}
	a := &answers[0]
	if a.Verdict == lease.VerdictRejected {
		sh.rejects.Answer(ctx, gate.Identify(ctx).Caller())
	}
	logFields(ctx, "verdict", a.Verdict.String(), "reason", a.Reason.String())
	return form(sh.Engine.Now(), a), nil
}

// noteReport adds what a report says of itself to the log line of the call. It leaves out a field
// that is malformed.
func noteReport(ctx context.Context, r *lease.Report) {
	logFields(ctx, convert.LogFields(r)...)
	if r.Invalid == nil && r.Worker != "" {
		logFields(ctx, "sender", r.Worker)
	}
}

// maxFaultText bounds each text that the engine keeps about a malformed report, in bytes. It is
// needed because the worker chooses the names of fields.
const maxFaultText = 256

// RejectMalformed lets the engine judge a report over HTTP whose body cannot be converted to a
// request. The verdict is REJECTED. It counts for the lease, which the caller holds by its task
// token, and is added to the history of the task.
func (s *Services) RejectMalformed(
	ctx context.Context, task lease.TaskID, leaseID string, said lease.Kind, wrong *lease.FieldError,
) error {
	who := gate.Identify(ctx)
	wrong = &lease.FieldError{
		Field:   lease.Clip(wrong.Field, maxFaultText),
		Problem: lease.Clip(wrong.Problem, maxFaultText),
	}
	_, err := s.shared.Engine.Judge(ctx, who.Tenant,
		[]*lease.Report{{Kind: said, TaskID: task.String(), LeaseID: leaseID, Invalid: wrong}})
	if err != nil {
		return refusal.Status(err)
	}
	s.shared.rejects.Answer(ctx, who.Caller())
	return nil
}

// MalformedReports returns, for each method of WorkerService that takes a report, the function that
// answers a report that cannot be decoded.
func (s *Services) MalformedReports() map[string]reqcodec.Answer {
	sh := s.shared
	return map[string]reqcodec.Answer{
		"Start":     rejecting(sh, lease.KindStart, convert.StartResponse),
		"Heartbeat": rejecting(sh, lease.KindHeartbeat, convert.HeartbeatResponse),
		"Complete":  rejecting(sh, lease.KindComplete, convert.CompleteResponse),
		"Fail":      rejecting(sh, lease.KindFail, convert.FailResponse),
		"Release":   rejecting(sh, lease.KindRelease, convert.ReleaseResponse),
	}
}

// rejecting returns a function that lets the engine judge a report that cannot be decoded (V1).
// Only the kind of the report and its fault are known.
func rejecting[Res any](sh *shared, said lease.Kind, form func(lease.Now, *lease.Answer) *Res) reqcodec.Answer {
	return func(ctx context.Context, err *lease.FieldError) (any, error) {
		return judged(ctx, sh, &lease.Report{Kind: said, Invalid: err}, form)
	}
}
