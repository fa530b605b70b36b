package coordinator_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// If the store's file was moved or removed, the log says so once, and /readyz, the metrics and
// GetStatus say so until the file is back.
func TestMissingStoreFileIsReported(t *testing.T) {
	var gone atomic.Bool
	wiretest.ServeWith(t, nil, coordinator.Config{StoreGone: gone.Load}, func(t *testing.T, r *wiretest.Rig) {
		for _, isGone := range []bool{false, true, false} {
			gone.Store(isGone)
			time.Sleep(3 * coordinator.StoreCheckInterval)
			synctest.Wait()
			code, want := http.StatusOK, "ready\n"
			if isGone {
				code, want = http.StatusServiceUnavailable, "not ready: "+coordinator.StoreGone+"\n"
			}
			if text := wiretest.GetPath(t, r, "/readyz", code); text != want {
				t.Errorf("gone %v: /readyz says %q, want %q", isGone, text, want)
			}
			if metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK); strings.Contains(metrics, "\nlessor_store_gone 1\n") != isGone {
				t.Errorf("gone %v: lessor_store_gone is %v", isGone, !isGone)
			}
			if s, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{}); err != nil || s.GetStoreGone() != isGone {
				t.Errorf("gone %v: GetStatus says %v (%v)", isGone, s.GetStoreGone(), err)
			}
		}
		log := r.Log.String()
		if strings.Count(log, coordinator.StoreGone) != 1 || strings.Count(log, "back in its place") != 1 {
			t.Errorf("the log does not have the loss and the return of the file exactly once: %s", log)
		}
	})
}

// While the store's file is not in its place, no task is accepted or granted, since the next start
// would not find it. Running tasks report, a repeated submit finds its task (T1), and reads work.
// All goes on when the file is back.
func TestNoTasksWhileTheStoreIsGone(t *testing.T) {
	t.Attr("rules", "T1")
	var gone atomic.Bool
	wiretest.ServeWith(t, nil, coordinator.Config{StoreGone: gone.Load}, func(t *testing.T, r *wiretest.Rig) {
		known := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.IdempotencyKey = "other", "k" }).GetTaskId()
		r.Submit(t, nil)
		running := r.Lease(t)
		ready := r.Submit(t, nil).GetTaskId()
		gone.Store(true)
		time.Sleep(2 * coordinator.StoreCheckInterval)

		spec := &lessorv1.TaskSpec{Queue: "q"}
		_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
		if status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != refusal.CodeStoreGone {
			t.Errorf("SubmitTask: %v, want UNAVAILABLE, %s", err, refusal.CodeStoreGone)
		}
		_, err = r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec}})
		if refusal.CodeOf(err) != refusal.CodeStoreGone {
			t.Errorf("BatchSubmitTasks: %v, want %s", err, refusal.CodeStoreGone)
		}
		if again := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.IdempotencyKey = "other", "k" }).GetTaskId(); again != known {
			t.Errorf("a repeated submit got %s, want the task %s that exists", again, known)
		}
		for _, wait := range []time.Duration{0, time.Second} {
			res, err := r.Workers.Lease(t.Context(),
				&lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}, Wait: durationpb.New(wait)})
			if err != nil || len(res.GetAssignments()) > 0 {
				t.Errorf("a lease that waits %v got %v (%v), want nothing", wait, res, err)
			}
		}
		why, err := r.Tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: ready})
		if err != nil || why.GetFindings()[0].GetCode() != lessorv1.FindingCode_FINDING_CODE_STORE_GONE {
			t.Errorf("ExplainTask: %v (%v), want STORE_GONE", why, err)
		}
		if v := r.Complete(t, running, "").GetVerdict(); v != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("the report of a running task got %v, want COMMITTED", v)
		}

		gone.Store(false)
		time.Sleep(2 * coordinator.StoreCheckInterval)
		r.Submit(t, nil)
		if a := r.Lease(t); a.GetTask().GetTaskId() != ready {
			t.Errorf("leased %s, want %s", a.GetTask().GetTaskId(), ready)
		}
	})
}
