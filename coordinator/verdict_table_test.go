package coordinator

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// TestVerdicts checks the table of verdicts, by unary calls and on a stream. Both together with every row must also reach every reason that a verdict
// can have.
func TestVerdicts(t *testing.T) {
	for name, v := range map[string]voice{"unary": unary{}, "stream": streaming{}} {
		t.Run(name, func(t *testing.T) {
			heard := map[lessorv1.Reason]bool{}
			for _, tt := range slices.Concat(verdictRows, lostRows, reportRows) {
				t.Run(tt.rules+" "+tt.name, func(t *testing.T) {
					t.Attr("rules", tt.rules)
					inCourt(t, v, heard, tt.play)
				})
			}
			for n := range lessorv1.Reason_name {
				if r := lessorv1.Reason(n); heard[r] == slices.Contains(noVerdicts, r) {
					t.Errorf("%v heard: %v", r, heard[r])
				}
			}
		})
	}
}

// noVerdicts are the reasons for the end of tasks and leases that are never the reason of a verdict.
var noVerdicts = []lessorv1.Reason{
	lessorv1.Reason_REASON_UNSPECIFIED, lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT, lessorv1.Reason_REASON_START_TIMEOUT,
	lessorv1.Reason_REASON_DISPATCH_UNAVAILABLE, lessorv1.Reason_REASON_REPORTED, lessorv1.Reason_REASON_RESOURCE_GONE,
}

type verdictRow struct {
	rules, name string
	play        func(c *court)
}

// verdictRows are the rows about the content of a report: V1 to V6, V11 and V12.
var verdictRows = []verdictRow{
	{"V1", "an id is missing or a field is bad", func(c *court) {
		a := c.granted(nil)
		none, long := completed(a, ""), completed(a, "")
		none.GetComplete().LeaseId = ""
		long.GetComplete().ReportId = text(257)
		c.says(none, "REJECTED INVALID_REQUEST")
		c.says(long, "REJECTED INVALID_REQUEST")
		c.beats(&lessorv1.Assignment{}, "REJECTED INVALID_REQUEST")
		c.says(completed(a, ""), "COMMITTED NONE")
	}},
	{"V2", "no such task", func(c *court) {
		theirs := c.strange(c.t)
		for _, leaseID := range []string{theirs.LeaseID, "x"} {
			a := &lessorv1.Assignment{Task: &lessorv1.Task{TaskId: theirs.Task.ID.String()}, LeaseId: leaseID}
			c.says(completed(a, ""), "REJECTED UNKNOWN_TASK")
			c.beats(a, "REJECTED UNKNOWN_TASK")
		}
		random := &lessorv1.Task{TaskId: lease.TaskID{Space: 1, Seq: 1 << 40}.String()}
		c.says(started(&lessorv1.Assignment{Task: random, LeaseId: "x"}), "REJECTED UNKNOWN_TASK")
	}},
	{"V3", "a lease id that is not of this task", func(c *court) {
		a, b := c.granted(nil), c.granted(nil)
		for _, leaseID := range []string{"x", b.GetLeaseId()} {
			wrong := &lessorv1.Assignment{Task: a.GetTask(), LeaseId: leaseID}
			c.says(completed(wrong, ""), "REJECTED INVALID_LEASE")
			c.beats(wrong, "REJECTED INVALID_LEASE")
		}
	}},
	{"V4", "the same report again", func(c *court) {
		a := c.granted(nil)
		c.says(completed(a, "x"), "COMMITTED NONE")
		c.says(completed(a, "x"), "COMMITTED NONE replayed")
	}},
	{"V5 V18", "another report, a Start or a heartbeat after the report", func(c *court) {
		a := c.granted(nil)
		c.says(completed(a, "x"), "COMMITTED NONE")
		c.says(completed(a, "y"), "REJECTED DUPLICATE_REPORT")
		c.says(released(a), "REJECTED DUPLICATE_REPORT")
		c.says(started(a), "CANCELLED ALREADY_REPORTED")
		c.beats(a, "CANCELLED ALREADY_REPORTED")
		wantText(c.t, "the output", string(c.wantState(a, "COMPLETED").GetOutput()), "x")
	}},
	{"V6", "another attempt than the lease's", func(c *court) {
		a := c.granted(nil)
		wrong := started(a)
		wrong.GetStart().Attempt = 2
		c.says(wrong, "REJECTED INVALID_REQUEST")
		c.wantState(a, "LEASED")
	}},
	{"V11", "an output over the limit leaves the lease live", func(c *court) {
		a := c.granted(nil)
		c.says(completed(a, text(1<<20+1)), "REJECTED RESULT_TOO_LARGE")
		c.beats(a, "COMMITTED NONE")
		c.says(completed(a, text(1<<20)), "COMMITTED NONE")
	}},
	{"V12", "a live lease", func(c *court) {
		a := c.granted(nil)
		c.says(started(a), "COMMITTED NONE")
		c.beats(a, "COMMITTED NONE")
		c.wantState(a, "RUNNING")
		c.says(completed(a, ""), "COMMITTED NONE")
		c.wantState(a, "COMPLETED")
	}},
}

// lost checks that every call under the lease is CANCELLED with this reason, and that Start and Heartbeat have should_cancel.
func (c *court) lost(a *lessorv1.Assignment, reason string) {
	c.t.Helper()
	c.says(started(a), "CANCELLED "+reason+" stop")
	c.beats(a, "CANCELLED "+reason+" stop")
	c.says(released(a), "CANCELLED "+reason)
	c.says(completed(a, "late"), "CANCELLED "+reason)
}

// lostRows are the rows about leases that are not live any more: V7 to V10.
var lostRows = []verdictRow{
	{"V7 A9", "of an older epoch", func(c *court) {
		a := c.granted(nil)
		c.restart(Config{Recovery: engine.InvalidateLeases})
		c.lost(a, "COORDINATOR_RECOVERED")
		b := c.lease(c.t)
		c.lost(a, "COORDINATOR_RECOVERED") // still this, not SUPERSEDED
		c.says(completed(b, ""), "COMMITTED NONE")
	}},
	{"V8", "of a task that was deleted", func(c *court) {
		a := c.granted(nil)
		_, err := c.tasks.DeleteTask(c.t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId(), Force: true})
		if err != nil {
			c.t.Fatal(err)
		}
		c.lost(a, "TASK_GONE")
	}},
	{"V9", "of a task that another has", func(c *court) {
		a := c.granted(nil)
		time.Sleep(lease.DefaultHeartbeatTimeout)
		synctest.Wait() // otherwise the lease request could come before the expiry, at the same instant
		b := c.lease(c.t)
		c.lost(a, "SUPERSEDED")
		if n := c.voice.report(c, completed(a, "late"))[0].GetCurrentAttempt(); n != 2 {
			c.t.Errorf("current_attempt is %d, want 2", n)
		}
		c.says(completed(b, "good"), "COMMITTED NONE")
		wantText(c.t, "the output", string(c.wantState(a, "COMPLETED").GetOutput()), "good")
	}},
	{"V10 A4", "expired", func(c *court) {
		a := c.granted(nil)
		time.Sleep(lease.DefaultHeartbeatTimeout)
		c.lost(a, "LEASE_EXPIRED")
		c.wantState(a, "READY")
	}},
	{"V10", "not acknowledged", func(c *court) {
		tk := c.work(c.t, "deaf", 1)
		c.submitAll(c.t, 1)
		a := hear[*lessorv1.Dispatch](tk).GetAssignments()[0]
		time.Sleep(lease.DefaultAckWithin)
		c.lost(a, "DISPATCH_UNACKED")
		c.wantState(a, "READY")
	}},
	{"V10", "cancelled before its first Start", func(c *court) {
		a := c.granted(nil)
		c.cancel(c.t, a)
		c.lost(a, "TASK_CANCELLED")
		c.wantState(a, "CANCELLED")
	}},
	{"V10", "its grace is over", func(c *court) {
		a := c.granted(nil)
		c.start(c.t, a)
		c.cancel(c.t, a)
		time.Sleep(lease.DefaultCancelGrace)
		c.lost(a, "CANCEL_TIMEOUT")
		c.wantState(a, "FAILED")
	}},
	{"V10", "the attempt took too long", func(c *court) {
		a := c.granted(func(s *lessorv1.TaskSpec) { s.AttemptTimeout = durationpb.New(20 * time.Second) })
		time.Sleep(20 * time.Second)
		c.lost(a, "DEADLINE_EXCEEDED")
	}},
	{"V10", "the task took too long", func(c *court) {
		a := c.granted(func(s *lessorv1.TaskSpec) { s.Deadline = timestamppb.New(time.Now().Add(20 * time.Second)) })
		time.Sleep(20 * time.Second)
		c.lost(a, "DEADLINE_EXCEEDED")
		c.wantState(a, "FAILED")
	}},
	{"V10", "taken back", func(c *court) {
		tk := c.work(c.t, "leaving", 1)
		c.submitAll(c.t, 1)
		a := tk.given(1)[0]
		tk.say(&lessorv1.Goodbye{})
		if err := tk.over(); err != nil {
			c.t.Fatal(err)
		}
		c.lost(a, "REVOKED")
		c.wantState(a, "READY")
	}},
}

func failed(a *lessorv1.Assignment, message string) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{Message: message},
	}}}
}

// reportRows are the rows about what a report leads to: V13, V14 and V16 to V19.
var reportRows = []verdictRow{
	{"V13", "times and metrics make no other report, content does", func(c *court) {
		a := c.granted(nil)
		c.says(completed(a, "x"), "COMMITTED NONE")
		same := completed(a, "x")
		same.GetComplete().CompletedAt, same.GetComplete().Metrics = timestamppb.Now(), map[string]float64{"s": 1}
		same.GetComplete().ReportId = "another"
		c.says(same, "COMMITTED NONE replayed")
		more := completed(a, "x")
		more.GetComplete().Artifacts = []*lessorv1.Artifact{{ResourceId: "r"}}
		c.says(more, "REJECTED DUPLICATE_REPORT")
	}},
	{"V14", "a verdict outlives a restart and a lowered limit", func(c *court) {
		a, b := c.granted(nil), c.granted(nil)
		c.says(completed(a, text(1000)), "COMMITTED NONE")
		c.says(failed(b, text(1000)), "COMMITTED NONE")
		c.restart(Config{Limits: lease.Limits{Output: 10, Stack: 10}})
		c.says(completed(a, text(1000)), "COMMITTED NONE replayed")
		c.says(failed(b, text(1000)), "COMMITTED NONE replayed")
		c.says(completed(a, text(1001)), "REJECTED DUPLICATE_REPORT")
	}},
	{"V16", "a Fail that is retried closes the attempt", func(c *court) {
		a := c.granted(nil)
		first := c.says(failed(a, "broken"), "COMMITTED NONE")
		task := c.wantState(a, "SCHEDULED")
		again := c.says(failed(a, "broken"), "COMMITTED NONE replayed")
		if at := task.GetRetryAt().AsTime(); !first.GetRetryAt().AsTime().Equal(at) || !again.GetRetryAt().AsTime().Equal(at) {
			c.t.Errorf("retry_at is %v, then %v; the task has %v", first.GetRetryAt(), again.GetRetryAt(), at)
		}
		c.beats(a, "CANCELLED ALREADY_REPORTED")
	}},
	{"V16", "a Fail that is not retried, and a Release", func(c *court) {
		a := c.granted(func(s *lessorv1.TaskSpec) { s.RetryPolicy = &lessorv1.RetryPolicy{MaxAttempts: 1} })
		c.says(failed(a, "broken"), "COMMITTED NONE")
		c.wantState(a, "FAILED")
		b := c.granted(nil)
		c.says(released(b), "COMMITTED NONE")
		c.wantState(b, "READY")
	}},
	{"V17", "of two reports at once one is committed", func(c *court) {
		for range 20 {
			a := c.granted(nil)
			c.race(completed(a, "x"), failed(a, "broken"), "COMMITTED NONE", "REJECTED DUPLICATE_REPORT")
			if c.get(c.t, a.GetTask().GetTaskId()).GetState() == lessorv1.TaskState_TASK_STATE_SCHEDULED {
				c.cancel(c.t, a) // so that the next round's lease does not get this task
			}
		}
	}},
	{"V18", "Start and Heartbeat again, live and not", func(c *court) {
		a := c.granted(nil)
		for range 2 {
			c.says(started(a), "COMMITTED NONE")
			c.beats(a, "COMMITTED NONE")
		}
		c.cancel(c.t, a)
		for range 2 {
			c.says(started(a), "COMMITTED NONE stop")
			c.beats(a, "COMMITTED NONE stop")
		}
		time.Sleep(lease.DefaultCancelGrace)
		before := eventTypes(c.wantState(a, "FAILED").GetHistory())
		c.says(started(a), "CANCELLED CANCEL_TIMEOUT stop")
		c.beats(a, "CANCELLED CANCEL_TIMEOUT stop")
		after := eventTypes(c.wantState(a, "FAILED").GetHistory())
		wantText(c.t, "the history", strings.ReplaceAll(after, " REFUSED", ""), before)
	}},
	{"V19", "reports from LEASED, RUNNING and CANCELLING", func(c *court) {
		for _, state := range []string{"LEASED", "RUNNING", "CANCELLING"} {
			a := c.granted(nil)
			c.beats(a, "COMMITTED NONE")
			if state != "LEASED" {
				c.says(started(a), "COMMITTED NONE")
			}
			if state == "CANCELLING" {
				c.cancel(c.t, a)
			}
			c.wantState(a, state)
			c.says(completed(a, ""), "COMMITTED NONE")
			c.wantState(a, "COMPLETED")
		}
	}},
}
