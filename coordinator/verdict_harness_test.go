package coordinator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// verdictCase runs one row of the table of verdicts against a coordinator. Its reporter reports by
// unary calls or on a stream.
type verdictCase struct {
	*wiretest.Rig
	t        *testing.T
	st       *memstore.Store
	reporter reporter
	reasons  map[lessorv1.Reason]bool // the reasons of all verdicts so far
}

// reporter sends reports and heartbeats, either by unary calls or on a stream.
type reporter interface {
	// report sends all reports at the same time, and returns their verdicts in the order of the
	// reports.
	report(c *verdictCase, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict
	beat(c *verdictCase, claim *lessorv1.HeartbeatRequest) *lessorv1.HeartbeatResponse
}

// runVerdictCase runs one row of the table in a bubble of fake time.
func runVerdictCase(t *testing.T, v reporter, reasons map[lessorv1.Reason]bool, run func(c *verdictCase)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &verdictCase{t: t, st: memstore.New(), reporter: v, reasons: reasons}
		c.Rig = wiretest.New(t, c.st)
		defer func() { c.Close(t) }()
		run(c)
	})
}

// restart stops the coordinator, and starts it again with the configuration cfg.
func (c *verdictCase) restart(cfg coordinator.Config) {
	c.t.Helper()
	c.Close(c.t)
	c.st = c.st.Reopen()
	c.Rig = wiretest.NewWith(c.t, c.st, cfg)
}

// submitAndLease submits a task, and leases it by a unary call.
func (c *verdictCase) submitAndLease(change func(*lessorv1.TaskSpec)) *lessorv1.Assignment {
	c.t.Helper()
	c.Submit(c.t, change)
	return c.Lease(c.t)
}

// wantVerdict sends a report, and checks that describe returns want for its verdict.
func (c *verdictCase) wantVerdict(report *lessorv1.Report, want string) *lessorv1.ReportVerdict {
	c.t.Helper()
	v := c.reporter.report(c, report)[0]
	wiretest.WantEqual(c.t, "the verdict", c.describe(v, report.GetStart() != nil), want)
	return v
}

// wantHeartbeatVerdict sends a heartbeat, and checks that describe returns want for its verdict.
func (c *verdictCase) wantHeartbeatVerdict(a *lessorv1.Assignment, want string) {
	c.t.Helper()
	wiretest.WantEqual(c.t, "the verdict on a heartbeat", c.describe(c.reporter.beat(c, wiretest.Renewal(a)), true), want)
}

// wantVerdictsOfRace sends two reports at the same time. want has the two verdicts in alphabetical
// order, because either report may come first.
func (c *verdictCase) wantVerdictsOfRace(a, b *lessorv1.Report, want ...string) {
	c.t.Helper()
	var got []string
	for _, v := range c.reporter.report(c, a, b) {
		got = append(got, c.describe(v, false))
	}
	slices.Sort(got)
	wiretest.WantEqual(c.t, "the verdicts", strings.Join(got, ", "), strings.Join(want, ", "))
}

// wantState waits for all timers that are due, checks the state of a lease's task, and returns the
// task.
func (c *verdictCase) wantState(a *lessorv1.Assignment, want string) *lessorv1.Task {
	c.t.Helper()
	synctest.Wait()
	task := c.Get(c.t, a.GetTask().GetTaskId())
	wiretest.WantEqual(c.t, "the task", strings.TrimPrefix(task.GetState().String(), "TASK_STATE_"), want)
	return task
}

// verdict has what the answers to Start, Heartbeat and reports have in common.
type verdict interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetShouldCancel() bool
}

// describe returns verdict and reason, "replayed" if the verdict is a replay, and "stop" if it has
// should_cancel. Only the answers to Start and Heartbeat all have that field; for them,
// hasShouldCancel is true.
func (c *verdictCase) describe(v verdict, hasShouldCancel bool) string {
	c.reasons[v.GetReason()] = true
	words := strings.TrimPrefix(v.GetVerdict().String(), "VERDICT_") + " " + strings.TrimPrefix(v.GetReason().String(), "REASON_")
	if r, ok := v.(*lessorv1.ReportVerdict); ok && r.GetReplayed() {
		words += " replayed"
	}
	if hasShouldCancel && v.GetShouldCancel() {
		words += " stop"
	}
	return words
}

// unaryCalls makes a unary call for each report.
type unaryCalls struct{}

func (unaryCalls) report(c *verdictCase, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	c.t.Helper()
	verdicts := make([]*lessorv1.ReportVerdict, len(reports))
	errs := make([]error, len(reports))
	var calls sync.WaitGroup
	for i, r := range reports {
		calls.Go(func() { verdicts[i], errs[i] = callUnary(c, r) })
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return verdicts
}

// callUnary makes the unary call for a report, and returns its answer as a ReportVerdict.
func callUnary(c *verdictCase, r *lessorv1.Report) (*lessorv1.ReportVerdict, error) {
	ctx := c.t.Context()
	switch {
	case r.GetStart() != nil:
		v, err := c.Workers.Start(ctx, r.GetStart())
		return &lessorv1.ReportVerdict{Verdict: v.GetVerdict(), Reason: v.GetReason(), ShouldCancel: v.GetShouldCancel()}, err
	case r.GetComplete() != nil:
		v, err := c.Workers.Complete(ctx, r.GetComplete())
		return verdictOfReport(v), err
	case r.GetFail() != nil:
		v, err := c.Workers.Fail(ctx, r.GetFail())
		return verdictOfReport(v), err
	}
	v, err := c.Workers.Release(ctx, r.GetRelease())
	return verdictOfReport(v), err
}

// verdictOfReport returns the answer to a unary report as a ReportVerdict.
func verdictOfReport(v interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetCurrentAttempt() uint32
	GetRetryAt() *timestamppb.Timestamp
	GetReplayed() bool
},
) *lessorv1.ReportVerdict {
	return &lessorv1.ReportVerdict{
		Verdict: v.GetVerdict(), Reason: v.GetReason(), CurrentAttempt: v.GetCurrentAttempt(), RetryAt: v.GetRetryAt(),
		Replayed: v.GetReplayed(),
	}
}

func (unaryCalls) beat(c *verdictCase, claim *lessorv1.HeartbeatRequest) *lessorv1.HeartbeatResponse {
	c.t.Helper()
	v, err := c.Workers.Heartbeat(c.t.Context(), claim)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// sessionFrames sends frames. It opens a new stream each time, which gets no work.
type sessionFrames struct{}

func (sessionFrames) report(c *verdictCase, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	c.t.Helper()
	worker := c.openIdleSession()
	defer worker.Cut()
	return worker.Report(reports...)
}

func (sessionFrames) beat(c *verdictCase, claim *lessorv1.HeartbeatRequest) *lessorv1.HeartbeatResponse {
	c.t.Helper()
	worker := c.openIdleSession()
	defer worker.Cut()
	v := worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{
		Healthy: true,
		Leases:  []*lessorv1.HeartbeatRequest{claim},
	}).GetLeases()[0]
	return &lessorv1.HeartbeatResponse{
		Verdict: v.GetVerdict(), Reason: v.GetReason(), Detail: v.GetDetail(), TaskState: v.GetTaskState(),
		ShouldCancel: v.GetShouldCancel(),
		CancelReason: v.GetCancelReason(), ExpiresAt: v.GetExpiresAt(), ExpiresIn: v.GetExpiresIn(),
		CurrentAttempt: v.GetCurrentAttempt(),
	}
}

// openIdleSession opens a session that gets no work.
func (c *verdictCase) openIdleSession() *wiretest.Worker {
	c.t.Helper()
	worker := c.OpenStream(c.t, "idle")
	worker.Handshake()
	idle := wiretest.Registration(1)
	idle.Queues = []string{"nothing"}
	worker.Send(idle)
	return worker
}
