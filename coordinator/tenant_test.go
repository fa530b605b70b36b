package coordinator_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X2, V2: a task of another tenant does not exist for reads, commands, reports, lists and bulk
// commands.
func TestOtherTenantsTasksDoNotExist(t *testing.T) {
	t.Attr("rules", "X2 V2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		granted := r.LeaseOfOtherTenant(t)
		id := granted.Task.ID.String()
		for name, err := range map[string]error{
			"get":     wiretest.ErrOf(r.Tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})),
			"cancel":  wiretest.ErrOf(r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})),
			"retry":   wiretest.ErrOf(r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})),
			"delete":  wiretest.ErrOf(r.Tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, Force: true})),
			"watch":   wiretest.ErrOf(wiretest.WatchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id})),
			"adopt":   wiretest.ErrOf(r.Tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: id})),
			"explain": wiretest.ErrOf(r.Tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})),
			"queue":   wiretest.ErrOf(r.Admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "q"})),
			"purge":   wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"})),
		} {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s: %v, want NOT_FOUND", name, err)
			}
		}
		for _, leaseID := range []string{granted.LeaseID, "x"} { // V2 holds for the true lease id and for any other
			res, err := r.Workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: leaseID})
			if err != nil || res.GetReason() != lessorv1.Reason_REASON_UNKNOWN_TASK || res.GetTaskState() != 0 {
				t.Errorf("complete: %v (%v), want UNKNOWN_TASK without the task's state", res, err)
			}
		}
		await, err := r.Tasks.AwaitTasks(ctx)
		if err == nil {
			err = await.Send(&lessorv1.AwaitTasksRequest{Add: []string{id}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if told, err := await.Recv(); err != nil || len(told.GetTasks()) != 1 || told.GetTasks()[0].GetError().GetCode() != refusal.CodeNotFound {
			t.Errorf("await: %v (%v), want %s", told, err, refusal.CodeNotFound)
		}
		if events := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})(); len(events) != 0 {
			t.Errorf("watch run: %v, want none", events)
		}
		if list, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{}); err != nil || len(list.GetTasks()) != 0 {
			t.Errorf("list: %v (%v), want none", list, err)
		}
		bulk, err := r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true, Force: true})
		if err != nil || bulk.GetResult().GetChanged()+bulk.GetResult().GetSkipped() != 0 {
			t.Errorf("bulk delete: %v (%v), want none changed and none skipped", bulk, err)
		}
		if queues, err := r.Admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{}); err != nil || len(queues.GetQueues()) != 0 {
			t.Errorf("queues: %v (%v), want none", queues, err)
		}
	})
}
