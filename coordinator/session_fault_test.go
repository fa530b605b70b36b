package coordinator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// faultyStore is a store in memory. While a fault is set, a read calls the fault instead.
type faultyStore struct {
	*memstore.Store
	fault atomic.Pointer[func() error]
}

func (s *faultyStore) View(fn func(store.Reader) error) error {
	if fault := s.fault.Load(); fault != nil {
		return (*fault)()
	}
	return s.Store.View(fn)
}

// W14: an internal error or a panic ends only the stream in which it happens, with INTERNAL. The leases of its worker stay live, and other streams are
// not affected.
func TestFaultEndsItsStream(t *testing.T) {
	t.Attr("rules", "W14")
	for name, fault := range map[string]func() error{
		"a store that cannot be read": func() error { return errors.New("EIO") },
		"a panic":                     func() error { panic("a bug") },
	} {
		t.Run(name, func(t *testing.T) {
			st := &faultyStore{Store: memstore.New()}
			serve(t, st, func(t *testing.T, r *rig) {
				other := r.openStream(t, "other")
				other.handshake()
				worker := r.openSession(t, "w", 1)
				st.fault.Store(&fault)
				r.submitAll(t, 1)
				if err := worker.waitForEnd(); status.Code(err) != codes.Internal || refusal.CodeOf(err) != refusal.CodeInternal {
					t.Errorf("the stream ended with %v, want INTERNAL and %s", err, refusal.CodeInternal)
				}
				st.fault.Store(nil)
				other.wantNoFrame()
				again := r.openSession(t, "w", 1)
				wantCommitted(t, again.report(completed(again.receiveAssignments(1)[0], "")))
			})
		})
	}
}

// W14, W3: if the coordinator cannot judge a report, the report gets an error with a wait in the place of its verdict. The stream does not end.
func TestReportThatCannotBeJudgedGetsAnError(t *testing.T) {
	t.Attr("rules", "W14 W3")
	items := []*lessorv1.Report{started(&lessorv1.Assignment{LeaseId: "x"}), started(&lessorv1.Assignment{LeaseId: "y"})}
	wantNone := func(t *testing.T, verdicts []*lessorv1.ReportVerdict, code string) {
		t.Helper()
		for i, v := range verdicts {
			if v.GetVerdict() != 0 || v.GetLeaseId() != items[i].GetStart().GetLeaseId() || v.GetError().GetRetryAfter() == nil {
				t.Errorf("item %d is %v, want an error", i, v)
			}
			wantEqual(t, "code", v.GetError().GetCode(), code)
		}
	}
	t.Run("the engine is overloaded", func(t *testing.T) {
		st := memstore.New()
		serve(t, st, func(t *testing.T, r *rig) {
			worker := r.openSession(t, "w", 1)
			r.submitAll(t, 1)
			work := worker.receiveAssignments(1)
			synctest.Wait()
			defer blockCommits(st)()
			worker.send(&lessorv1.Reports{Reports: []*lessorv1.Report{started(work[0])}})
			synctest.Wait()
			for range 2 { // fill the queue twice, because the engine takes some commands out after the first time
				for !errors.Is(r.engine.Post(gate.DefaultTenant, nil, func([]lease.Answer, error) {}), engine.ErrOverloaded) {
				}
				synctest.Wait()
			}
			wantNone(t, worker.report(items...), refusal.CodeOverloaded)
		})
	})
	t.Run("the engine has stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			worker := withoutEngine(t).openSession(t, "w", 1)
			wantNone(t, worker.report(items...), refusal.CodeStopping)
			worker.send(&lessorv1.Goodbye{})
			if err := worker.waitForEnd(); err != nil {
				t.Errorf("the stream ended with %v, want OK", err)
			}
		})
	})
}

// A10: if the engine has stopped, every call that needs the engine gets UNAVAILABLE. No call answers as if it had done or seen something.
func TestCallsWithoutAnEngineFail(t *testing.T) {
	t.Attr("rules", "A10")
	e, ctx := edgeWithoutEngine(t), contextAfterGate(t.Context(), t)
	tasks, admin, workers := &taskService{edge: e}, &adminService{edge: e, sessions: session.NewRegistry()}, &workerService{edge: e}
	id, spec := lease.TaskID{Space: 1, Seq: 1}.String(), &lessorv1.TaskSpec{Queue: "q"}
	for name, err := range map[string]error{
		"SubmitTask":       errOf(tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})),
		"BatchSubmitTasks": errOf(tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec}})),
		"CancelTask":       errOf(tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})),
		"RetryTask":        errOf(tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})),
		"DeleteTask":       errOf(tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id})),
		"AdoptResult":      errOf(tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: id})),
		"ExplainTask":      errOf(tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})),
		"ListQueues":       errOf(admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{})),
		"GetQueue":         errOf(admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "q"})),
		"UpdateQueue":      errOf(admin.UpdateQueue(ctx, &lessorv1.UpdateQueueRequest{Name: "q"})),
		"PurgeQueue":       errOf(admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"})),
		"ListWorkers":      errOf(admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{})),
		"GetStatus":        errOf(admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})),
		"Lease":            errOf(workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})),
		"Start":            errOf(workers.Start(ctx, &lessorv1.StartRequest{TaskId: id, LeaseId: "x"})),
		"Heartbeat":        errOf(workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: "x"})),
		"Complete":         errOf(workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: "x"})),
		"Fail":             errOf(workers.Fail(ctx, &lessorv1.FailRequest{TaskId: id, LeaseId: "x"})),
		"Release":          errOf(workers.Release(ctx, &lessorv1.ReleaseRequest{TaskId: id, LeaseId: "x"})),
	} {
		if status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("%s: %v, want UNAVAILABLE and %s", name, err, refusal.CodeStopping)
		}
	}
}

// edgeWithoutEngine returns an edge whose engine has stopped.
func edgeWithoutEngine(t *testing.T) *edge {
	t.Helper()
	var cfg Config
	cfg.fill()
	st, ctx := memstore.New(), t.Context()
	eng, err := engine.Open(st, engine.Config{Limits: cfg.Limits, Events: newMetrics().events()})
	if err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if err := eng.Run(stopped); err != nil {
		t.Fatal(err)
	}
	return &edge{engine: eng, store: st, cfg: cfg, assigner: &convert.Assigner{}, stopping: ctx, quotas: noQuotas()}
}

// withoutEngine returns a rig that serves workers with an engine that has stopped.
func withoutEngine(t *testing.T) *rig {
	t.Helper()
	e := edgeWithoutEngine(t)
	s, lis := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.ChainStreamInterceptor(openGate(t).Stream)), bufconn.Listen(1<<10)
	lessorv1.RegisterWorkerServiceServer(s, &workerService{edge: e, streams: e.streams(session.NewRegistry())})
	go func() { _ = s.Serve(lis) }()
	conn := dial(t, lis)
	t.Cleanup(func() { _ = conn.Close(); s.Stop() })
	return &rig{workers: lessorv1.NewWorkerServiceClient(conn)}
}
