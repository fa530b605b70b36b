package coordinator_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// While the disk is full, every way to submit a task is refused, and each refusal has a wait.
// Leases, reports and cancels of existing tasks still work, and a repeated submit finds its task
// (T1).
func TestNoTasksWhileTheDiskIsFull(t *testing.T) {
	var full atomic.Bool
	wiretest.ServeWith(t, nil, coordinator.Config{DiskFull: full.Load}, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		doomed := r.Submit(t, nil).GetTaskId()
		known := r.Submit(t, func(s *lessorv1.TaskSpec) { s.IdempotencyKey = "k" })
		full.Store(true)
		spec := &lessorv1.TaskSpec{Queue: "q"}
		_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
		wiretest.WantDiskFull(t, "SubmitTask", err)
		_, err = r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec, spec}})
		wiretest.WantDiskFull(t, "BatchSubmitTasks", err)
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{spec}}); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil || res.GetResults()[0].GetError().GetCode() != refusal.CodeDiskFull || res.GetResults()[0].GetError().GetRetryAfter().AsDuration() != 5*time.Second {
			t.Errorf("SubmitStream: %v (%v), want %s with a wait of 5 s", res, err, refusal.CodeDiskFull)
		}
		again := r.Submit(t, func(s *lessorv1.TaskSpec) { s.IdempotencyKey = "k" })
		if again.GetTaskId() != known.GetTaskId() {
			t.Errorf("a repeated submit returns %v, want the task %s that exists", again, known.GetTaskId())
		}
		if a := r.Lease(t); r.Complete(t, a, "").GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Error("a result was not committed")
		}
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: doomed}); err != nil {
			t.Errorf("CancelTask while the disk is full: %v", err)
		}
		full.Store(false)
		r.Submit(t, nil)
	})
}

// While the disk is spent, the coordinator is ready, and stays healthy: workers have to reach it to
// report. /readyz, the metrics and GetStatus say that nothing is granted.
func TestSpentDiskIsShown(t *testing.T) {
	var full, spent atomic.Bool
	wiretest.ServeWith(t, nil, coordinator.Config{DiskFull: full.Load, DiskSpent: spent.Load}, func(t *testing.T, r *wiretest.Rig) {
		for _, c := range []struct {
			full, spent bool
			ready       string
		}{
			{false, false, "ready\n"},
			{true, false, "ready, but the disk of the coordinator is nearly full: new tasks are refused until there is room; running tasks continue\n"},
			{true, true, "ready, but the disk of the coordinator is almost full: new tasks are refused and none are granted until there is room; running tasks continue\n"},
			{false, false, "ready\n"},
		} {
			full.Store(c.full)
			spent.Store(c.spent)
			if text := wiretest.GetPath(t, r, "/readyz", http.StatusOK); text != c.ready {
				t.Errorf("full %v, spent %v: /readyz says %q, want %q", c.full, c.spent, text, c.ready)
			}
			metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
			if has := strings.Contains(metrics, "\nlessor_grants_stopped 1\n"); has != c.spent {
				t.Errorf("spent %v: lessor_grants_stopped is %v", c.spent, has)
			}
			s, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
			if err != nil || s.GetDiskFull() != c.full || s.GetGrantsStopped() != c.spent {
				t.Errorf("GetStatus: disk_full %v, grants_stopped %v (%v), want %v and %v",
					s.GetDiskFull(), s.GetGrantsStopped(), err, c.full, c.spent)
			}
			if got := r.HealthStatus(t); got != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("health is %v, want SERVING", got)
			}
		}
	})
}

// While the disk is full, the status has how much room is missing, on the disk or inside the store;
// otherwise nothing is.
func TestMissingRoomIsShown(t *testing.T) {
	var full atomic.Bool
	room := func() (free, needed, inside int64) { return 12345, 67800, 90000 }
	wiretest.ServeWith(t, nil, coordinator.Config{DiskFull: full.Load, DiskRoom: room}, func(t *testing.T, r *wiretest.Rig) {
		for _, is := range []bool{false, true} {
			full.Store(is)
			s, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if (s.DiskNeededBytes != nil) != is || (s.StoreNeededBytes != nil) != is || is && (s.GetDiskNeededBytes() != 67800 || s.GetStoreNeededBytes() != 90000) {
				t.Errorf("with disk_full %v: %v", is, s)
			}
		}
	})
}

// The metrics have the free space of the disk and how much of it is needed, or NaN where nobody
// knows; the status has what is free.
func TestRoomOfTheDiskIsShown(t *testing.T) {
	known := func() (free, needed, inside int64) { return 12345, 678, 90 }
	for _, c := range []struct {
		room         func() (free, needed, inside int64)
		free, needed string
	}{
		{known, "12345", "678"},
		{nil, "NaN", "NaN"},
	} {
		wiretest.ServeWith(t, nil, coordinator.Config{DiskRoom: c.room}, func(t *testing.T, r *wiretest.Rig) {
			metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
			for _, want := range []string{"\nlessor_disk_free_bytes " + c.free + "\n", "\nlessor_disk_needed_bytes " + c.needed + "\n"} {
				if !strings.Contains(metrics, want) {
					t.Errorf("the metrics lack %q", want)
				}
			}
			st, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if known := st.DiskFreeBytes != nil; known != (c.room != nil) || known && strconv.FormatUint(st.GetDiskFreeBytes(), 10) != c.free {
				t.Errorf("disk_free_bytes of the status is %v, want %s", st.DiskFreeBytes, c.free)
			}
		})
	}
}

// statsStore is a store of this size.
type statsStore struct {
	store.Store
	stats store.Stats
}

func (s statsStore) Stats() store.Stats { return s.stats }

// The free space inside the store that the metrics have is the one that the status has and that
// decides about new tasks, not all of it: a backup may keep the rest, or the disk lack it.
func TestRoomInsideTheStoreIsShown(t *testing.T) {
	st := statsStore{memstore.New(), store.Stats{FileBytes: 1000, FreeBytes: 700, ReusableBytes: 300}}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
		for _, want := range []string{"\nlessor_store_bytes 1000\n", "\nlessor_store_free_bytes 300\n", "\nlessor_store_used_bytes 300\n"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %q", want)
			}
		}
		s, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
		if err != nil || s.GetStoreFreeBytes() != 300 {
			t.Errorf("store_free_bytes of the status is %d (%v), want 300", s.GetStoreFreeBytes(), err)
		}
	})
}
