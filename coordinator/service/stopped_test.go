package service_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A10: if the engine has stopped, every call that needs the engine gets UNAVAILABLE. No call
// answers as if it had done or seen something.
func TestCallsWithoutAnEngineFail(t *testing.T) {
	t.Attr("rules", "A10")
	s, ctx := wiretest.Stopped(t).Services, wiretest.ContextAfterGate(t.Context(), t)
	tasks, admin, workers := s.Tasks, s.Admin, s.Workers
	id, spec := lease.TaskID{Space: 1, Seq: 1}.String(), &lessorv1.TaskSpec{Queue: "q"}
	for name, err := range map[string]error{
		"SubmitTask":       wiretest.ErrOf(tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})),
		"BatchSubmitTasks": wiretest.ErrOf(tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec}})),
		"CancelTask":       wiretest.ErrOf(tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})),
		"RetryTask":        wiretest.ErrOf(tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})),
		"DeleteTask":       wiretest.ErrOf(tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id})),
		"AdoptResult":      wiretest.ErrOf(tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: id})),
		"ExplainTask":      wiretest.ErrOf(tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})),
		"ListQueues":       wiretest.ErrOf(admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{})),
		"GetQueue":         wiretest.ErrOf(admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "q"})),
		"UpdateQueue":      wiretest.ErrOf(admin.UpdateQueue(ctx, &lessorv1.UpdateQueueRequest{Name: "q"})),
		"PurgeQueue":       wiretest.ErrOf(admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"})),
		"ListWorkers":      wiretest.ErrOf(admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{})),
		"ListTenants":      wiretest.ErrOf(admin.ListTenants(ctx, &lessorv1.ListTenantsRequest{})),
		"GetStatus":        wiretest.ErrOf(admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})),
		"Lease":            wiretest.ErrOf(workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})),
		"Start":            wiretest.ErrOf(workers.Start(ctx, &lessorv1.StartRequest{TaskId: id, LeaseId: "x"})),
		"Heartbeat":        wiretest.ErrOf(workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: "x"})),
		"Complete":         wiretest.ErrOf(workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: "x"})),
		"Fail":             wiretest.ErrOf(workers.Fail(ctx, &lessorv1.FailRequest{TaskId: id, LeaseId: "x"})),
		"Release":          wiretest.ErrOf(workers.Release(ctx, &lessorv1.ReleaseRequest{TaskId: id, LeaseId: "x"})),
	} {
		if status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("%s: %v, want UNAVAILABLE and %s", name, err, refusal.CodeStopping)
		}
	}
}
