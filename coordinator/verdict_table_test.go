package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// TestVerdicts checks the rows of the table of verdicts, by unary calls and on a stream. In each of
// the two ways, the rows must give every reason that a verdict can have.
func TestVerdicts(t *testing.T) {
	for name, v := range map[string]reporter{"unary": unaryCalls{}, "stream": sessionFrames{}} {
		t.Run(name, func(t *testing.T) {
			reasons := map[lessorv1.Reason]bool{}
			for _, tt := range slices.Concat(verdictRows, lostRows, reportRows) {
				t.Run(tt.rules+" "+tt.name, func(t *testing.T) {
					t.Attr("rules", tt.rules)
					runVerdictCase(t, v, reasons, tt.run)
				})
			}
			for n := range lessorv1.Reason_name {
				if r := lessorv1.Reason(n); reasons[r] == slices.Contains(noVerdicts, r) {
					t.Errorf("was %v the reason of a verdict: %v, want %v", r, reasons[r], !reasons[r])
				}
			}
		})
	}
}

// noVerdicts are the reasons that no verdict has. A task or a lease may end for them.
var noVerdicts = []lessorv1.Reason{
	lessorv1.Reason_REASON_UNSPECIFIED, lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT, lessorv1.Reason_REASON_START_TIMEOUT,
	lessorv1.Reason_REASON_DISPATCH_UNAVAILABLE, lessorv1.Reason_REASON_REPORTED, lessorv1.Reason_REASON_RESOURCE_GONE,
}

// verdictRow is a row of the table of verdicts: its rules, and a function that checks them.
type verdictRow struct {
	rules, name string
	run         func(c *verdictCase)
}

// verdictRows are the rows about the content of a report: V1 to V6, V11 and V12.
var verdictRows = []verdictRow{
	{"V1", "an id is missing or a field is bad", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		none, long := wiretest.Completed(a, ""), wiretest.Completed(a, "")
		none.GetComplete().LeaseId = ""
		long.GetComplete().ReportId = wiretest.Text(257)
		c.wantVerdict(none, "REJECTED INVALID_REQUEST")
		c.wantVerdict(long, "REJECTED INVALID_REQUEST")
		c.wantHeartbeatVerdict(&lessorv1.Assignment{}, "REJECTED INVALID_REQUEST")
		c.wantVerdict(wiretest.Completed(a, ""), "COMMITTED NONE")
	}},
	{"V2", "no such task", func(c *verdictCase) {
		other := c.LeaseOfOtherTenant(c.t)
		for _, leaseID := range []string{other.LeaseID, "x"} {
			a := &lessorv1.Assignment{Task: &lessorv1.Task{TaskId: other.Task.ID.String()}, LeaseId: leaseID}
			c.wantVerdict(wiretest.Completed(a, ""), "REJECTED UNKNOWN_TASK")
			c.wantHeartbeatVerdict(a, "REJECTED UNKNOWN_TASK")
		}
		unknown := &lessorv1.Task{TaskId: lease.TaskID{Space: 1, Seq: 1 << 40}.String()}
		c.wantVerdict(wiretest.Started(&lessorv1.Assignment{Task: unknown, LeaseId: "x"}), "REJECTED UNKNOWN_TASK")
	}},
	{"V3", "a lease id that is not of this task", func(c *verdictCase) {
		a, b := c.submitAndLease(nil), c.submitAndLease(nil)
		for _, leaseID := range []string{"x", b.GetLeaseId()} {
			wrong := &lessorv1.Assignment{Task: a.GetTask(), LeaseId: leaseID}
			c.wantVerdict(wiretest.Completed(wrong, ""), "REJECTED INVALID_LEASE")
			c.wantHeartbeatVerdict(wrong, "REJECTED INVALID_LEASE")
		}
	}},
	{"V4", "the same report again", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.wantVerdict(wiretest.Completed(a, "x"), "COMMITTED NONE")
		c.wantVerdict(wiretest.Completed(a, "x"), "COMMITTED NONE replayed")
	}},
	{"V5 V18", "another report, a Start or a heartbeat after the report", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.wantVerdict(wiretest.Completed(a, "x"), "COMMITTED NONE")
		c.wantVerdict(wiretest.Completed(a, "y"), "REJECTED DUPLICATE_REPORT")
		c.wantVerdict(wiretest.Released(a), "REJECTED DUPLICATE_REPORT")
		c.wantVerdict(wiretest.Started(a), "CANCELLED ALREADY_REPORTED")
		c.wantHeartbeatVerdict(a, "CANCELLED ALREADY_REPORTED")
		wiretest.WantEqual(c.t, "the output", string(c.wantState(a, "COMPLETED").GetOutput()), "x")
	}},
	{"V6", "another attempt than the lease's", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		wrong := wiretest.Started(a)
		wrong.GetStart().Attempt = 2
		c.wantVerdict(wrong, "REJECTED INVALID_REQUEST")
		c.wantState(a, "LEASED")
	}},
	{"V11", "an output over the limit leaves the lease live", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.wantVerdict(wiretest.Completed(a, wiretest.Text(1<<20+1)), "REJECTED RESULT_TOO_LARGE")
		c.wantHeartbeatVerdict(a, "COMMITTED NONE")
		c.wantVerdict(wiretest.Completed(a, wiretest.Text(1<<20)), "COMMITTED NONE")
	}},
	{"V12", "a live lease", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.wantVerdict(wiretest.Started(a), "COMMITTED NONE")
		c.wantHeartbeatVerdict(a, "COMMITTED NONE")
		c.wantState(a, "RUNNING")
		c.wantVerdict(wiretest.Completed(a, ""), "COMMITTED NONE")
		c.wantState(a, "COMPLETED")
	}},
}

// wantLost checks that every report and heartbeat under the lease is CANCELLED with this reason,
// and that Start and Heartbeat have should_cancel.
func (c *verdictCase) wantLost(a *lessorv1.Assignment, reason string) {
	c.t.Helper()
	c.wantVerdict(wiretest.Started(a), "CANCELLED "+reason+" stop")
	c.wantHeartbeatVerdict(a, "CANCELLED "+reason+" stop")
	c.wantVerdict(wiretest.Released(a), "CANCELLED "+reason)
	c.wantVerdict(wiretest.Completed(a, "late"), "CANCELLED "+reason)
}

// lostRows are the rows about leases that have ended: V7 to V10.
var lostRows = []verdictRow{
	{"V7 A9", "a lease of an older epoch", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.restart(coordinator.Config{Recovery: engine.InvalidateLeases})
		c.wantLost(a, "COORDINATOR_RECOVERED")
		b := c.Lease(c.t)
		c.wantLost(a, "COORDINATOR_RECOVERED") // the reason does not become SUPERSEDED
		c.wantVerdict(wiretest.Completed(b, ""), "COMMITTED NONE")
	}},
	{"V8", "a lease of a deleted task", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		_, err := c.Tasks.DeleteTask(c.t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId(), Force: true})
		if err != nil {
			c.t.Fatal(err)
		}
		c.wantLost(a, "TASK_GONE")
	}},
	{"V9", "a lease of a task that was granted again", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		time.Sleep(lease.DefaultHeartbeatTimeout)
		synctest.Wait() // so that the expiry comes before the lease request at the same instant
		b := c.Lease(c.t)
		c.wantLost(a, "SUPERSEDED")
		if n := c.reporter.report(c, wiretest.Completed(a, "late"))[0].GetCurrentAttempt(); n != 2 {
			c.t.Errorf("current_attempt is %d, want 2", n)
		}
		c.wantVerdict(wiretest.Completed(b, "good"), "COMMITTED NONE")
		wiretest.WantEqual(c.t, "the output", string(c.wantState(a, "COMPLETED").GetOutput()), "good")
	}},
	{"V10 A4", "an expired lease", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		time.Sleep(lease.DefaultHeartbeatTimeout)
		c.wantLost(a, "LEASE_EXPIRED")
		c.wantState(a, "READY")
	}},
	{"V10", "a lease whose dispatch was not acknowledged", func(c *verdictCase) {
		worker := c.OpenSession(c.t, "silent", 1)
		c.SubmitAll(c.t, 1)
		a := wiretest.NextPayload[*lessorv1.Dispatch](worker).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin)
		c.wantLost(a, "DISPATCH_UNACKED")
		c.wantState(a, "READY")
	}},
	{"V10", "a task that was cancelled before its first Start", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.Cancel(c.t, a)
		c.wantLost(a, "TASK_CANCELLED")
		c.wantState(a, "CANCELLED")
	}},
	{"V10", "a cancelled task whose grace is over", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.Start(c.t, a)
		c.Cancel(c.t, a)
		time.Sleep(lease.DefaultCancelGrace)
		c.wantLost(a, "CANCEL_TIMEOUT")
		c.wantState(a, "FAILED")
	}},
	{"V10", "an attempt over its timeout", func(c *verdictCase) {
		a := c.submitAndLease(func(s *lessorv1.TaskSpec) { s.AttemptTimeout = durationpb.New(20 * time.Second) })
		time.Sleep(20 * time.Second)
		c.wantLost(a, "DEADLINE_EXCEEDED")
	}},
	{"V10", "a task over its deadline", func(c *verdictCase) {
		a := c.submitAndLease(func(s *lessorv1.TaskSpec) { s.Deadline = timestamppb.New(time.Now().Add(20 * time.Second)) })
		time.Sleep(20 * time.Second)
		c.wantLost(a, "DEADLINE_EXCEEDED")
		c.wantState(a, "FAILED")
	}},
	{"V10", "a lease that the worker's goodbye gave back", func(c *verdictCase) {
		worker := c.OpenSession(c.t, "leaving", 1)
		c.SubmitAll(c.t, 1)
		a := worker.ReceiveAssignments(1)[0]
		worker.Send(&lessorv1.Goodbye{})
		if err := worker.WaitForEnd(); err != nil {
			c.t.Fatal(err)
		}
		c.wantLost(a, "REVOKED")
		c.wantState(a, "READY")
	}},
}

// failed returns a Fail report under the lease of a, with this error message.
func failed(a *lessorv1.Assignment, message string) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{Message: message},
	}}}
}

// reportRows are the rows about the effect of a report: V13, V14 and V16 to V19.
var reportRows = []verdictRow{
	{"V13", "the same content is the same report, whatever its times and metrics", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		c.wantVerdict(wiretest.Completed(a, "x"), "COMMITTED NONE")
		same := wiretest.Completed(a, "x")
		same.GetComplete().CompletedAt, same.GetComplete().Metrics = timestamppb.Now(), map[string]float64{"s": 1}
		same.GetComplete().ReportId = "another"
		c.wantVerdict(same, "COMMITTED NONE replayed")
		more := wiretest.Completed(a, "x")
		more.GetComplete().Artifacts = []*lessorv1.Artifact{{ResourceId: "r"}}
		c.wantVerdict(more, "REJECTED DUPLICATE_REPORT")
	}},
	{"V14", "a verdict outlives a restart and a lowered limit", func(c *verdictCase) {
		a, b := c.submitAndLease(nil), c.submitAndLease(nil)
		c.wantVerdict(wiretest.Completed(a, wiretest.Text(1000)), "COMMITTED NONE")
		c.wantVerdict(failed(b, wiretest.Text(1000)), "COMMITTED NONE")
		c.restart(coordinator.Config{Limits: lease.Limits{Output: 10, Stack: 10}})
		c.wantVerdict(wiretest.Completed(a, wiretest.Text(1000)), "COMMITTED NONE replayed")
		c.wantVerdict(failed(b, wiretest.Text(1000)), "COMMITTED NONE replayed")
		c.wantVerdict(wiretest.Completed(a, wiretest.Text(1001)), "REJECTED DUPLICATE_REPORT")
	}},
	{"V16", "a Fail that is retried closes the attempt", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		first := c.wantVerdict(failed(a, "broken"), "COMMITTED NONE")
		task := c.wantState(a, "SCHEDULED")
		again := c.wantVerdict(failed(a, "broken"), "COMMITTED NONE replayed")
		if at := task.GetRetryAt().AsTime(); !first.GetRetryAt().AsTime().Equal(at) || !again.GetRetryAt().AsTime().Equal(at) {
			c.t.Errorf("retry_at is %v, then %v; the task has %v", first.GetRetryAt(), again.GetRetryAt(), at)
		}
		c.wantHeartbeatVerdict(a, "CANCELLED ALREADY_REPORTED")
	}},
	{"V16", "a Fail that is not retried, and a Release", func(c *verdictCase) {
		a := c.submitAndLease(func(s *lessorv1.TaskSpec) { s.RetryPolicy = &lessorv1.RetryPolicy{MaxAttempts: 1} })
		c.wantVerdict(failed(a, "broken"), "COMMITTED NONE")
		c.wantState(a, "FAILED")
		b := c.submitAndLease(nil)
		c.wantVerdict(wiretest.Released(b), "COMMITTED NONE")
		c.wantState(b, "READY")
	}},
	{"V17", "one of two different reports at the same time is committed", func(c *verdictCase) {
		for range 20 {
			a := c.submitAndLease(nil)
			c.wantVerdictsOfRace(wiretest.Completed(a, "x"), failed(a, "broken"), "COMMITTED NONE", "REJECTED DUPLICATE_REPORT")
			if c.Get(c.t, a.GetTask().GetTaskId()).GetState() == lessorv1.TaskState_TASK_STATE_SCHEDULED {
				c.Cancel(c.t, a) // so that the next round's lease does not get this task
			}
		}
	}},
	{"V18", "Start and Heartbeat repeated, before and after the end of the lease", func(c *verdictCase) {
		a := c.submitAndLease(nil)
		for range 2 {
			c.wantVerdict(wiretest.Started(a), "COMMITTED NONE")
			c.wantHeartbeatVerdict(a, "COMMITTED NONE")
		}
		c.Cancel(c.t, a)
		for range 2 {
			c.wantVerdict(wiretest.Started(a), "COMMITTED NONE stop")
			c.wantHeartbeatVerdict(a, "COMMITTED NONE stop")
		}
		time.Sleep(lease.DefaultCancelGrace)
		before := wiretest.EventTypes(c.wantState(a, "FAILED").GetHistory())
		c.wantVerdict(wiretest.Started(a), "CANCELLED CANCEL_TIMEOUT stop")
		c.wantHeartbeatVerdict(a, "CANCELLED CANCEL_TIMEOUT stop")
		after := wiretest.EventTypes(c.wantState(a, "FAILED").GetHistory())
		wiretest.WantEqual(c.t, "the history", strings.ReplaceAll(after, " REFUSED", ""), before)
	}},
	{"V19", "reports from LEASED, RUNNING and CANCELLING", func(c *verdictCase) {
		for _, state := range []string{"LEASED", "RUNNING", "CANCELLING"} {
			a := c.submitAndLease(nil)
			c.wantHeartbeatVerdict(a, "COMMITTED NONE")
			if state != "LEASED" {
				c.wantVerdict(wiretest.Started(a), "COMMITTED NONE")
			}
			if state == "CANCELLING" {
				c.Cancel(c.t, a)
			}
			c.wantState(a, state)
			c.wantVerdict(wiretest.Completed(a, ""), "COMMITTED NONE")
			c.wantState(a, "COMPLETED")
		}
	}},
}
