package limits

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// leases asks for work by a unary call, at times twice with the same request id, and works on what
// it gets.
func (w *world) leases(tn *tenant) {
	worker, request := fmt.Sprint("w", w.rng.IntN(4)), ""
	if one(w.rng, 4) {
		request = fmt.Sprint("r", w.rng.IntN(3))
	}
	space, most, wait := pick(w.rng, tn.spaces...), 1+w.rng.Uint32N(6), pick(w.rng, 0, time.Second, 5*time.Second)
	for range pick(w.rng, 1, 1, 2) {
		w.leaseOnce(tn, worker, space, most, wait, request)
	}
}

func (w *world) leaseOnce(tn *tenant, worker, space string, most uint32, wait time.Duration, request string) {
	gone, both, caps := one(w.rng, 10), one(w.rng, 3), w.capabilities()
	w.busy.Go(func() {
		var got []*lessorv1.Assignment
		err := w.call(tn, "Lease", wait, func(ctx context.Context, c *client) error {
			if gone { // the caller leaves before the answer comes, or with it
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, wait/2)
				defer cancel()
			}
			res, err := c.workers.Lease(ctx, &lessorv1.LeaseRequest{
				WorkerId: worker, WorkspaceId: space, Queues: queues, MaxTasks: most, Wait: durationpb.New(wait),
				RequestId: request, Capabilities: caps,
			})
			got = res.GetAssignments()
			if gone && status.Code(err) == codes.DeadlineExceeded {
				return nil
			}
			return err
		})
		if err != nil {
			return
		}
		for _, a := range got {
			by := speaker(unary{w, worker})
			if both {
				by = &inTurn{by: []speaker{w.newWeb(a, worker), by}}
			}
			w.busy.Go(func() { w.work(w.handed(tn, a, nil), by) })
		}
	})
}

// capabilities are those of some worker.
func (w *world) capabilities() *lessorv1.Capabilities {
	c := &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{SingleFlight: one(w.rng, 6)}}
	for n := range features {
		if one(w.rng, 2) {
			c.Features = append(c.Features, fmt.Sprint("gpu", n))
		}
	}
	if one(w.rng, 4) {
		c.Types = []string{"", "x"}
	}
	if one(w.rng, 4) {
		c.Concurrency.PerTypeLimits = map[string]uint32{"x": 1}
	}
	if one(w.rng, 6) {
		c.Concurrency.MaxBytes = 500
	}
	return c
}

// unary is a worker that speaks by unary calls.
type unary struct {
	w      *world
	worker string
}

func (u unary) start(l *held) (a answer, ok bool) {
	began := time.Now()
	err := u.w.call(l.tn, "Start", 0, func(ctx context.Context, c *client) error {
		res, err := c.workers.Start(ctx, &lessorv1.StartRequest{TaskId: l.task, LeaseId: l.id, WorkerId: u.worker})
		a = answer{res.GetVerdict(), res.GetReason(), res.GetShouldCancel(), res.GetExpiresAt().AsTime()}
		return err
	})
	if err != nil {
		return a, false
	}
	u.w.book.answered(l.leaseRecord, "start", a.verdict, a.reason, began)
	return a, true
}

// beat renews the lease. The answer comes within the turns of the tenant, and of its other calls
// under way, however many tasks it submits.
func (u unary) beat(l *held, checkpoint []byte) (a answer, ok bool) {
	began, starts, crowd := time.Now(), u.w.starts.Load(), l.tn.calls.Load()
	err := u.w.call(l.tn, "Heartbeat", 0, func(ctx context.Context, c *client) error {
		res, err := c.workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{
			TaskId: l.task, LeaseId: l.id, WorkerId: u.worker, Checkpoint: checkpoint,
			Progress: &lessorv1.Progress{Fraction: 0.5},
		})
		a = answer{res.GetVerdict(), res.GetReason(), res.GetShouldCancel(), res.GetExpiresAt().AsTime()}
		return err
	})
	if err != nil {
		return a, false
	}
	turns := u.w.turns() * time.Duration(2+max(crowd, l.tn.calls.Load()))
	if took := time.Since(began); took > turns && !u.w.stalls && !u.w.calm.Load() && starts == u.w.starts.Load() {
		u.w.problem("T12: a heartbeat of %s, which had %d other calls under way, took %v; its turn comes within %v",
			l.tn.name, crowd, took, turns)
	}
	u.w.count("heartbeat", a.verdict.String()+" "+a.reason.String())
	u.w.book.answered(l.leaseRecord, "heartbeat", a.verdict, a.reason, began)
	return a, true
}

func (u unary) report(l *held, r report) (a answer, ok bool) {
	u.w.book.sending(l.leaseRecord, r)
	began := time.Now()
	err := u.w.call(l.tn, "report", 0, func(ctx context.Context, c *client) error {
		var res interface {
			GetVerdict() lessorv1.Verdict
			GetReason() lessorv1.Reason
		}
		var err error
		switch m := reportProto(l, r).GetReport().(type) {
		case *lessorv1.Report_Complete:
			res, err = c.workers.Complete(ctx, m.Complete)
		case *lessorv1.Report_Fail:
			res, err = c.workers.Fail(ctx, m.Fail)
		case *lessorv1.Report_Release:
			res, err = c.workers.Release(ctx, m.Release)
		}
		if err == nil {
			a = answer{verdict: res.GetVerdict(), reason: res.GetReason()}
		}
		return err
	})
	if err != nil {
		return a, false
	}
	u.w.count("report", a.verdict.String()+" "+a.reason.String())
	u.w.book.judged(l.leaseRecord, r, a.verdict, a.reason, began)
	return a, true
}

// reportProto returns the message of a report.
func reportProto(l *held, r report) *lessorv1.Report {
	switch r.kind {
	case "complete":
		return &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
			TaskId: l.task, LeaseId: l.id, ReportId: r.kind + r.output, Output: []byte(r.output),
		}}}
	case "fail", "cancelled", "give back":
		problem := &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: "no"}
		switch r.kind {
		case "cancelled":
			problem.Category = lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED
		case "give back":
			problem.Category, problem.Message = lessorv1.ErrorCategory_ERROR_CATEGORY_INFRASTRUCTURE, "given back"
		}
		return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{TaskId: l.task, LeaseId: l.id, ReportId: r.kind, Error: problem}}}
	}
	return &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{
		TaskId: l.task, LeaseId: l.id, ReportId: r.kind, Delay: durationpb.New(time.Second),
	}}}
}
