package service_test

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// T9: cancel, retry and delete by a filter change the selected tasks that can be changed, count
// them, and count the other selected ones as skipped.
func TestBulkCallsChangeTheSelectedTasks(t *testing.T) {
	t.Attr("rules", "T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		r.Submit(t, nil) // leased below
		held := r.Lease(t)
		for i := range 6 {
			r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.RunId = []string{"r1", "r2"}[i%2]
				s.Labels = map[string]string{"team": []string{"red", "blue"}[i/3]}
			})
		}
		check := func(name string, res interface{ GetResult() *lessorv1.BatchResult }, err error, changed, skipped uint64) {
			t.Helper()
			if got := res.GetResult(); err != nil || got.GetChanged() != changed || got.GetSkipped() != skipped || got.GetNextPageToken() != "" {
				t.Errorf("%s: %v (%v), want %d changed and %d skipped", name, got, err, changed, skipped)
			}
		}
		cancel, err := r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{
			Filter: &lessorv1.TaskFilter{RunId: "r1", Labels: map[string]string{"team": "red"}}, Reason: "why not",
		})
		check("cancel", cancel, err, 2, 0)
		cancel, err = r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{RunId: "r1"}})
		check("cancel again", cancel, err, 1, 2)
		retry, err := r.Tasks.BatchRetryTasks(ctx, &lessorv1.BatchRetryTasksRequest{Filter: &lessorv1.TaskFilter{Queue: "q"}})
		check("retry", retry, err, 3, 4)
		cancel, err = r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{All: true})
		check("cancel all, of which one is leased", cancel, err, 7, 0)
		cancel, err = r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{All: true})
		check("cancel all again", cancel, err, 0, 7)
		all, err := r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true})
		check("delete all", all, err, 6, 1)
		all, err = r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true, Force: true})
		check("delete by force", all, err, 1, 0)
		if late := r.Complete(t, held, ""); late.GetReason() != lessorv1.Reason_REASON_TASK_GONE {
			t.Errorf("the report for the deleted task got %v, want TASK_GONE", late)
		}
		none, err := r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true})
		check("delete nothing", none, err, 0, 0)
	})
}

// T9, S4: one call changes at most 10,000 tasks. The next call continues with the page token, which
// is valid only for the same call and filter.
func TestBulkCallContinuesWithAPageToken(t *testing.T) {
	t.Attr("rules", "T9 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		specs := make([]*lessorv1.TaskSpec, 1000)
		for i := range specs {
			specs[i] = &lessorv1.TaskSpec{Queue: "q"}
		}
		for range 12 {
			if _, err := r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		req := &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{Queue: "q"}}
		first, err := r.Tasks.BatchCancelTasks(ctx, req)
		token := first.GetResult().GetNextPageToken()
		if err != nil || first.GetResult().GetChanged() != 10_000 || token == "" {
			t.Fatalf("first call: %v (%v), want 10000 changed and a page token", first, err)
		}
		for name, err := range map[string]error{
			"another call":   wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: req.GetFilter(), PageToken: token})),
			"another filter": wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{All: true, PageToken: token})),
			"changed token":  wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: req.GetFilter(), PageToken: token + "x"})),
		} {
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
			}
		}
		req.PageToken = token
		second, err := r.Tasks.BatchCancelTasks(ctx, req)
		if err != nil || second.GetResult().GetChanged() != 2000 || second.GetResult().GetNextPageToken() != "" {
			t.Errorf("second call: %v (%v), want 2000 changed and no page token", second, err)
		}
	})
}

// T9, S4: a bulk retry sets the new deadline. A deadline in the past is refused, instead of
// skipping every task.
func TestDeadlineOfABulkRetry(t *testing.T) {
	t.Attr("rules", "T9 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		_, err := r.Tasks.BatchRetryTasks(t.Context(), &lessorv1.BatchRetryTasksRequest{All: true, Deadline: timestamppb.Now()})
		if v := detail.Of[*errdetails.BadRequest](status.Convert(err)).GetFieldViolations(); len(v) != 1 || v[0].GetField() != "deadline" {
			t.Errorf("%v, want a refusal of the field deadline", err)
		}
		id := r.Submit(t, nil).GetTaskId()
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		deadline := timestamppb.New(time.Now().Add(time.Minute))
		res, err := r.Tasks.BatchRetryTasks(t.Context(), &lessorv1.BatchRetryTasksRequest{All: true, Deadline: deadline})
		if err != nil || res.GetResult().GetChanged() != 1 {
			t.Fatalf("retry: %v (%v), want one changed", res, err)
		}
		if got := r.Get(t, id); !proto.Equal(got.GetSpec().GetDeadline(), deadline) || got.GetState() != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("the task is %v, want READY with the deadline %v", got, deadline.AsTime())
		}
	})
}

// T9, S4: a filter without a condition is refused as a probable mistake, unless all is set. So is
// one with a state that was not set: it does not select every state.
func TestBulkCallsNeedACondition(t *testing.T) {
	t.Attr("rules", "T9 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		task := r.Submit(t, nil)
		everything := &lessorv1.TaskFilter{
			WorkspaceId: "default",
			States:      []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_UNSPECIFIED},
		}
		unset := &lessorv1.TaskFilter{
			Queue:  task.GetSpec().GetQueue(),
			States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_COMPLETED, 0},
		}
		for name, err := range map[string]error{
			"no filter":                        wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{})),
			"a filter that every task matches": wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: everything})),
			"a state that was not set":         wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: unset})),
			"cancel":                           wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{})),
			"retry":                            wiretest.ErrOf(r.Tasks.BatchRetryTasks(ctx, &lessorv1.BatchRetryTasksRequest{})),
		} {
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
			}
		}
		if got := r.Get(t, task.GetTaskId()); got.GetState() != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("the task is %v, want READY", got.GetState())
		}
	})
}
