package coordinator

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X2, V2: a task of another tenant does not exist for reads, commands, reports, lists and bulk commands.
func TestOtherTenantsTasksDoNotExist(t *testing.T) {
	t.Attr("rules", "X2 V2")
	serve(t, nil, func(t *testing.T, r *rig) {
		ctx := t.Context()
		granted := r.leaseOfOtherTenant(t)
		id := granted.Task.ID.String()
		for name, err := range map[string]error{
			"get":     errOf(r.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})),
			"cancel":  errOf(r.tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})),
			"retry":   errOf(r.tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})),
			"delete":  errOf(r.tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, Force: true})),
			"watch":   errOf(watchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id})),
			"adopt":   errOf(r.tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: id})),
			"explain": errOf(r.tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})),
			"queue":   errOf(r.admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "q"})),
			"purge":   errOf(r.admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"})),
		} {
			if status.Code(err) != codes.NotFound {
				t.Errorf("%s: %v, want NOT_FOUND", name, err)
			}
		}
		for _, leaseID := range []string{granted.LeaseID, "x"} { // V2 holds for the true lease id and for any other
			res, err := r.workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: id, LeaseId: leaseID})
			if err != nil || res.GetReason() != lessorv1.Reason_REASON_UNKNOWN_TASK || res.GetTaskState() != 0 {
				t.Errorf("complete: %v (%v), want UNKNOWN_TASK without the task's state", res, err)
			}
		}
		await, err := r.tasks.AwaitTasks(ctx)
		if err == nil {
			err = await.Send(&lessorv1.AwaitTasksRequest{Add: []string{id}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if told, err := await.Recv(); err != nil || len(told.GetTasks()) != 1 || told.GetTasks()[0].GetError().GetCode() != refusal.CodeNotFound {
			t.Errorf("await: %v (%v), want %s", told, err, refusal.CodeNotFound)
		}
		if events := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})(); len(events) != 0 {
			t.Errorf("watch run: %v, want none", events)
		}
		if list, err := r.tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{}); err != nil || len(list.GetTasks()) != 0 {
			t.Errorf("list: %v (%v), want none", list, err)
		}
		bulk, err := r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true, Force: true})
		if err != nil || bulk.GetResult().GetChanged()+bulk.GetResult().GetSkipped() != 0 {
			t.Errorf("bulk delete: %v (%v), want none changed and none skipped", bulk, err)
		}
		if queues, err := r.admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{}); err != nil || len(queues.GetQueues()) != 0 {
			t.Errorf("queues: %v (%v), want none", queues, err)
		}
	})
}
