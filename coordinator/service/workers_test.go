package service_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Lease waits for the first task, at most for the field wait.
func TestLeaseWaits(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ask := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}, Wait: durationpb.New(30 * time.Second)}
		began := time.Now()
		res, err := r.Workers.Lease(t.Context(), ask)
		if err != nil || len(res.GetAssignments()) != 0 || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %v (%v), want nothing after 30 s", time.Since(began), res, err)
		}
		time.AfterFunc(10*time.Second, func() { r.Submit(t, nil) })
		began = time.Now()
		res, err = r.Workers.Lease(t.Context(), ask)
		if err != nil || len(res.GetAssignments()) != 1 || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v (%v), want the task after 10 s", time.Since(began), res, err)
		}
	})
}

// A wait above the limit is reduced to the limit.
func TestLeaseWaitIsLimited(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		began := time.Now()
		_, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{
			WorkerId: "w", Queues: []string{"q"}, Wait: durationpb.New(time.Hour),
		})
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("Lease returned after %v (%v), want %v", time.Since(began), err, time.Minute)
		}
	})
}

// S2: a Lease with the same request_id returns the same live assignments again.
func TestLeaseIsRepeatable(t *testing.T) {
	t.Attr("rules", "S2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		r.Submit(t, nil)
		ask := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}, RequestId: "1"}
		first, err := r.Workers.Lease(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.Workers.Lease(t.Context(), ask)
		if err != nil || len(again.GetAssignments()) != 1 || again.GetAssignments()[0].GetLeaseId() != first.GetAssignments()[0].GetLeaseId() {
			t.Errorf("again: %v (%v), want the same lease", again, err)
		}
	})
}

// T10, A2: the next attempt gets the last checkpoint and a higher fencing token.
func TestNextAttemptGetsTheCheckpoint(t *testing.T) {
	t.Attr("rules", "T10 A2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		a := r.Lease(t)
		claim := &lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Checkpoint: []byte("half")}
		if _, err := r.Workers.Heartbeat(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		res, err := r.Workers.Release(t.Context(),
			&lessorv1.ReleaseRequest{TaskId: claim.GetTaskId(), LeaseId: claim.GetLeaseId()})
		if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Fatalf("release: %v (%v)", res, err)
		}
		b := r.Lease(t)
		if string(b.GetCheckpoint()) != "half" || b.GetAttempt() != 2 || b.GetFencingToken() <= a.GetFencingToken() {
			t.Errorf("the second assignment is %v, want the checkpoint, attempt 2 and a fencing token above %d",
				b, a.GetFencingToken())
		}
	})
}

// T5: a started task whose leases expired three times is FAILED and quarantined. A task that no
// worker started in time is FAILED, but not quarantined.
func TestPoisonTaskIsQuarantined(t *testing.T) {
	t.Attr("rules", "T5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		for range lease.DefaultMaxLosses {
			r.Start(t, r.Lease(t))
			// the 2 s are for the backoff after the second loss
			time.Sleep(lease.DefaultHeartbeatTimeout + 2*time.Second)
		}
		task := r.Get(t, id)
		if task.GetReason() != lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT || !task.GetQuarantined() || task.GetLosses() != 3 || task.GetFailures() != 0 {
			t.Errorf("after three losses the task is %v, want HEARTBEAT_TIMEOUT, quarantined, 3 losses and no failures", task)
		}
		want := `"level":"WARN","msg":"a task is quarantined: too many workers were lost with it","tenant":"default","task_id":"` + id +
			`","queue":"q","worker":"w","losses":3,"cause":"LEASE_EXPIRED"`
		if n := strings.Count(r.Log.String(), want); n != 1 {
			t.Errorf("the log has %d lines with %s, want one: %s", n, want, r.Log.String())
		}
		id = r.Submit(t, func(s *lessorv1.TaskSpec) { s.StartTimeout = durationpb.New(time.Second) }).GetTaskId()
		time.Sleep(2 * time.Second)
		if task := r.Get(t, id); task.GetReason() != lessorv1.Reason_REASON_START_TIMEOUT || task.GetQuarantined() {
			t.Errorf("after its start_timeout the task is %v, want START_TIMEOUT and not quarantined", task)
		}
	})
}

// A bad report gets a verdict, never an error.
func TestReportsGetVerdicts(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		id := r.Submit(t, nil).GetTaskId()
		a := r.Lease(t)
		unknown := lease.TaskID{Space: 1, Seq: 1 << 40}.String()
		for _, tt := range []struct {
			name   string
			req    *lessorv1.CompleteRequest
			reason lessorv1.Reason
		}{
			{"no ids", &lessorv1.CompleteRequest{}, lessorv1.Reason_REASON_INVALID_REQUEST},
			{"no lease", &lessorv1.CompleteRequest{TaskId: id}, lessorv1.Reason_REASON_INVALID_REQUEST},
			{"bad field", &lessorv1.CompleteRequest{TaskId: id, LeaseId: a.GetLeaseId(), ReportId: wiretest.Text(257)}, lessorv1.Reason_REASON_INVALID_REQUEST},
			{"unknown task", &lessorv1.CompleteRequest{TaskId: unknown, LeaseId: "x"}, lessorv1.Reason_REASON_UNKNOWN_TASK},
			{"nonsense", &lessorv1.CompleteRequest{TaskId: wiretest.Text(1000), LeaseId: wiretest.Text(1000)}, lessorv1.Reason_REASON_UNKNOWN_TASK},
			{"forged lease", &lessorv1.CompleteRequest{TaskId: id, LeaseId: "x"}, lessorv1.Reason_REASON_INVALID_LEASE},
			{"wrong attempt", &lessorv1.CompleteRequest{TaskId: id, LeaseId: a.GetLeaseId(), Attempt: 2}, lessorv1.Reason_REASON_INVALID_REQUEST},
			{"too large", &lessorv1.CompleteRequest{TaskId: id, LeaseId: a.GetLeaseId(), Output: make([]byte, 1<<20+1)}, lessorv1.Reason_REASON_RESULT_TOO_LARGE},
		} {
			res, err := r.Workers.Complete(ctx, tt.req)
			if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED || res.GetReason() != tt.reason || res.GetServerTime() == nil {
				t.Errorf("%s: %v (%v), want REJECTED / %v", tt.name, res, err, tt.reason)
			}
		}
		if res := r.Complete(t, a, ""); res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("the good report: %v, want COMMITTED", res)
		}
	})
}

// T7: a worker that uses unary calls gets should_cancel with its next heartbeat. Its Fail then
// makes the task CANCELLED.
func TestCancelReachesTheWorker(t *testing.T) {
	t.Attr("rules", "T7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		id := r.Submit(t, nil).GetTaskId()
		a := r.Lease(t)
		r.Start(t, a)
		if _, err := r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id, Reason: "not needed"}); err != nil {
			t.Fatal(err)
		}
		beat, err := r.Workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: a.GetLeaseId()})
		if err != nil || !beat.GetShouldCancel() || beat.GetCancelReason() != "not needed" {
			t.Errorf("heartbeat: %v (%v), want should_cancel", beat, err)
		}
		res, err := r.Workers.Fail(ctx, &lessorv1.FailRequest{
			TaskId: id, LeaseId: a.GetLeaseId(),
			Error:   &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED, Message: "stopped"},
			Metrics: map[string]float64{"rows": 7}, CancelledDuringPhase: "upload", PartialProgress: []byte("half"),
		})
		if err != nil || res.GetTaskState() != lessorv1.TaskState_TASK_STATE_CANCELLED {
			t.Errorf("fail: %v (%v), want the task CANCELLED", res, err)
		}
		got := r.Get(t, id)
		if got.GetError().GetMessage() != "stopped" || got.GetMetrics()["rows"] != 7 {
			t.Errorf("the task is %v, want the error and the metrics of the Fail", got)
		}
		wiretest.WantEqual(t, "cancelled_during_phase", got.GetCancelledDuringPhase(), "upload")
		wiretest.WantEqual(t, "partial_progress", string(got.GetPartialProgress()), "half")
	})
}

// S3: a task has the metrics of its result alone, without those of an earlier failed attempt.
func TestTaskHasTheMetricsOfItsResult(t *testing.T) {
	t.Attr("rules", "S3")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		a := r.Lease(t)
		_, err := r.Workers.Fail(t.Context(), &lessorv1.FailRequest{
			TaskId: id, LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{}, Metrics: map[string]float64{"failed": 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the backoff
		a = r.Lease(t)
		_, err = r.Workers.Complete(t.Context(), &lessorv1.CompleteRequest{
			TaskId: id, LeaseId: a.GetLeaseId(), Metrics: map[string]float64{"rows": 7},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Get(t, id).GetMetrics(); !maps.Equal(got, map[string]float64{"rows": 7}) {
			t.Errorf("the metrics of the task are %v, want rows=7 alone", got)
		}
	})
}

// The response to Lease fits into a message of gRPC's default size, however large the tasks are,
// and whatever makes them large. A caller that could not read the response would lose its leases.
func TestLeaseFitsIntoAMessage(t *testing.T) {
	long := func(kind string) string { return kind + strings.Repeat("x", 256-len(kind)) }
	for name, c := range map[string]struct {
		tasks  int
		change func(*lessorv1.TaskSpec)
	}{
		"payloads": {6, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) }},
		"labels": {150, func(s *lessorv1.TaskSpec) {
			s.Labels = map[string]string{}
			for i := range 64 {
				s.Labels[long(strconv.Itoa(i))] = long("value")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				spec := &lessorv1.TaskSpec{Queue: "q"}
				c.change(spec)
				part := min(c.tasks, 3<<20/proto.Size(spec)) // a request has to fit, too
				for n := 0; n < c.tasks; n += part {
					batch := &lessorv1.BatchSubmitTasksRequest{Tasks: slices.Repeat([]*lessorv1.TaskSpec{spec},
						min(part, c.tasks-n))}
					if _, err := r.Tasks.BatchSubmitTasks(t.Context(), batch); err != nil {
						t.Fatal(err)
					}
				}
				ask := &lessorv1.LeaseRequest{
					WorkerId: "w", WorkspaceId: spec.GetWorkspaceId(), Queues: []string{"q"},
					MaxTasks: 1000,
				}
				for got := 0; got < c.tasks; {
					res, err := r.Workers.Lease(t.Context(), ask)
					if err != nil || len(res.GetAssignments()) == 0 {
						t.Fatalf("after %d of %d tasks: %d assignments (%v), want at least one more",
							got, c.tasks, len(res.GetAssignments()), err)
					}
					got += len(res.GetAssignments())
				}
			})
		})
	}
}

// Once a heartbeat is answered, GetTask shows its progress.
func TestProgressIsVisibleAfterTheAnswer(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		a := r.Lease(t)
		for i := range 100 {
			want := float64(i+1) / 100
			if _, err := r.Workers.Heartbeat(t.Context(), &lessorv1.HeartbeatRequest{
				TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Fraction: want},
			}); err != nil {
				t.Fatal(err)
			}
			res, err := r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: a.GetTask().GetTaskId()})
			if err != nil || res.GetTask().GetProgress().GetFraction() != want {
				t.Fatalf("the progress is %v (%v), want %v", res.GetTask().GetProgress(), err, want)
			}
		}
	})
}
