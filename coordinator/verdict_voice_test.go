package coordinator

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// court is a coordinator that is called by one voice.
type court struct {
	*rig
	t     *testing.T
	st    *memstore.Store
	voice voice
	heard map[lessorv1.Reason]bool
}

// voice is a way to call a coordinator: by unary calls or on a stream.
type voice interface {
	// report sends reports at the same time, and returns their verdicts in the order of the reports.
	report(c *court, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict
	beat(c *court, claim *lessorv1.HeartbeatRequest) *lessorv1.HeartbeatResponse
}

// inCourt runs a case in a bubble of fake time.
func inCourt(t *testing.T, v voice, heard map[lessorv1.Reason]bool, play func(c *court)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &court{t: t, st: memstore.New(), voice: v, heard: heard}
		c.rig = newRig(t, c.st)
		defer func() { c.close(t) }()
		play(c)
	})
}

// restart stops the coordinator, and starts it again with other settings.
func (c *court) restart(cfg Config) {
	c.t.Helper()
	c.close(c.t)
	c.st = c.st.Reopen()
	c.rig = newRigWith(c.t, c.st, cfg)
}

// granted submits a task, and leases it by a unary call.
func (c *court) granted(change func(*lessorv1.TaskSpec)) *lessorv1.Assignment {
	c.t.Helper()
	c.submit(c.t, change)
	return c.lease(c.t)
}

// says sends a report, and checks the verdict; see sentence.
func (c *court) says(report *lessorv1.Report, want string) *lessorv1.ReportVerdict {
	c.t.Helper()
	v := c.voice.report(c, report)[0]
	wantText(c.t, "the verdict", c.sentence(v, report.GetStart() != nil), want)
	return v
}

// beats sends a heartbeat, and checks the verdict.
func (c *court) beats(a *lessorv1.Assignment, want string) {
	c.t.Helper()
	wantText(c.t, "the verdict on a heartbeat", c.sentence(c.voice.beat(c, renewal(a)), true), want)
}

// race sends two reports at the same time, and checks the two verdicts in any order.
func (c *court) race(a, b *lessorv1.Report, want ...string) {
	c.t.Helper()
	var got []string
	for _, v := range c.voice.report(c, a, b) {
		got = append(got, c.sentence(v, false))
	}
	slices.Sort(got)
	wantText(c.t, "the verdicts", strings.Join(got, ", "), strings.Join(want, ", "))
}

// wantState checks the state of a lease's task after all due timers, and returns the task.
func (c *court) wantState(a *lessorv1.Assignment, want string) *lessorv1.Task {
	c.t.Helper()
	synctest.Wait()
	task := c.get(c.t, a.GetTask().GetTaskId())
	wantText(c.t, "the task", strings.TrimPrefix(task.GetState().String(), "TASK_STATE_"), want)
	return task
}

type verdict interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetShouldCancel() bool
}

// sentence describes a verdict, with the word "stop" if a Start or Heartbeat has should_cancel. (Answers to other reports do not all have that
// field.)
func (c *court) sentence(v verdict, steers bool) string {
	c.heard[v.GetReason()] = true
	words := strings.TrimPrefix(v.GetVerdict().String(), "VERDICT_") + " " + strings.TrimPrefix(v.GetReason().String(), "REASON_")
	if r, ok := v.(*lessorv1.ReportVerdict); ok && r.GetReplayed() {
		words += " replayed"
	}
	if steers && v.GetShouldCancel() {
		words += " stop"
	}
	return words
}

// unary makes a unary call for each report.
type unary struct{}

func (unary) report(c *court, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	c.t.Helper()
	verdicts := make([]*lessorv1.ReportVerdict, len(reports))
	errs := make([]error, len(reports))
	var calls sync.WaitGroup
	for i, r := range reports {
		calls.Go(func() { verdicts[i], errs[i] = callOf(c, r) })
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return verdicts
}

// callOf makes the unary call for a report, and returns its answer as a ReportVerdict.
func callOf(c *court, r *lessorv1.Report) (*lessorv1.ReportVerdict, error) {
	ctx := c.t.Context()
	switch {
	case r.GetStart() != nil:
		v, err := c.workers.Start(ctx, r.GetStart())
		return &lessorv1.ReportVerdict{Verdict: v.GetVerdict(), Reason: v.GetReason(), ShouldCancel: v.GetShouldCancel()}, err
	case r.GetComplete() != nil:
		v, err := c.workers.Complete(ctx, r.GetComplete())
		return closing(v), err
	case r.GetFail() != nil:
		v, err := c.workers.Fail(ctx, r.GetFail())
		return closing(v), err
	}
	v, err := c.workers.Release(ctx, r.GetRelease())
	return closing(v), err
}

func closing(v interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
	GetCurrentAttempt() uint32
	GetRetryAt() *timestamppb.Timestamp
	GetReplayed() bool
},
) *lessorv1.ReportVerdict {
	return &lessorv1.ReportVerdict{
		Verdict: v.GetVerdict(), Reason: v.GetReason(), CurrentAttempt: v.GetCurrentAttempt(), RetryAt: v.GetRetryAt(), Replayed: v.GetReplayed(),
	}
}

func (unary) beat(c *court, claim *lessorv1.HeartbeatRequest) *lessorv1.HeartbeatResponse {
	c.t.Helper()
	v, err := c.workers.Heartbeat(c.t.Context(), claim)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// streaming sends frames, each time on a new stream that gets no work.
type streaming struct{}

func (streaming) report(c *court, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	c.t.Helper()
	tk := c.speaker()
	defer tk.cut()
	return tk.judge(reports...)
}

func (streaming) beat(c *court, claim *lessorv1.HeartbeatRequest) *lessorv1.HeartbeatResponse {
	c.t.Helper()
	tk := c.speaker()
	defer tk.cut()
	v := tk.beatOf(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{claim}}).GetLeases()[0]
	return &lessorv1.HeartbeatResponse{
		Verdict: v.GetVerdict(), Reason: v.GetReason(), Detail: v.GetDetail(), TaskState: v.GetTaskState(), ShouldCancel: v.GetShouldCancel(),
		CancelReason: v.GetCancelReason(), ExpiresAt: v.GetExpiresAt(), ExpiresIn: v.GetExpiresIn(), CurrentAttempt: v.GetCurrentAttempt(),
	}
}

func (c *court) speaker() *talker {
	c.t.Helper()
	tk := c.talk(c.t, "speaker")
	tk.shake()
	idle := registration(1)
	idle.Queues = []string{"nothing"}
	tk.say(idle)
	return tk
}
