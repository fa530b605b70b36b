package coordinator

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// list returns the task keys of the tasks that a filter selects, in one page that must be the last one.
func (r *rig) list(t *testing.T, filter *lessorv1.TaskFilter) string {
	t.Helper()
	res, err := r.tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{Filter: filter})
	if err != nil || res.GetNextPageToken() != "" {
		t.Errorf("%v: %v (%v), want all on one page", filter, res, err)
	}
	var keys []string
	for _, task := range res.GetTasks() {
		keys = append(keys, task.GetSpec().GetTaskKey())
	}
	return strings.Join(keys, " ")
}

// A list, a cancel, a retry and a delete of the task with an idempotency key look at no other tasks, however many there are, and find the task that has
// the key now.
func TestTaskOfAnIdempotencyKeyIsFoundWithoutOthers(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		ctx := t.Context()
		submit := func(name, workspace, key string) {
			r.submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey, s.WorkspaceId, s.IdempotencyKey = name, workspace, key })
		}
		submitLabelled(ctx, t, r, maxScan)
		submit("first", "", "key")
		submit("other", "", "other")
		submit("elsewhere", "ws", "key")
		byKey := &lessorv1.TaskFilter{IdempotencyKey: "key"}
		wantEqual(t, "the tasks of the key", r.list(t, byKey), "first")
		wantEqual(t, "those of a workspace", r.list(t, &lessorv1.TaskFilter{IdempotencyKey: "key", WorkspaceId: "ws"}), "elsewhere")
		wantEqual(t, "those of a key that no task has", r.list(t, &lessorv1.TaskFilter{IdempotencyKey: "none"}), "")
		wantEqual(t, "those of another queue", r.list(t, &lessorv1.TaskFilter{IdempotencyKey: "key", Queue: "none"}), "")
		held := []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_LEASED}
		wantEqual(t, "those that are held", r.list(t, &lessorv1.TaskFilter{IdempotencyKey: "key", States: held}), "")

		check := func(verb string, res interface{ GetResult() *lessorv1.BatchResult }, err error, changed, skipped uint64) {
			t.Helper()
			if got := res.GetResult(); err != nil || got.GetChanged() != changed || got.GetSkipped() != skipped || got.GetNextPageToken() != "" {
				t.Errorf("%s: %v (%v), want %d changed, %d skipped and no more", verb, got, err, changed, skipped)
			}
		}
		cancel, err := r.tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: byKey})
		check("cancel", cancel, err, 1, 0)
		cancel, err = r.tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: byKey})
		check("cancel again", cancel, err, 0, 1)
		retry, err := r.tasks.BatchRetryTasks(ctx, &lessorv1.BatchRetryTasksRequest{Filter: byKey})
		check("retry", retry, err, 1, 0)
		narrower := &lessorv1.TaskFilter{IdempotencyKey: "key", Queue: "none"}
		gone, err := r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: narrower})
		check("delete in another queue", gone, err, 0, 0)
		gone, err = r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: byKey})
		check("delete", gone, err, 1, 0)
		gone, err = r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: byKey})
		check("delete again", gone, err, 0, 0)

		wantEqual(t, "the tasks of the key after the delete", r.list(t, byKey), "")
		submit("second", "", "key")
		wantEqual(t, "those after another submit", r.list(t, byKey), "second")
		wantEqual(t, "the others", r.list(t, &lessorv1.TaskFilter{IdempotencyKey: "other"}), "other")
	})
}

// A filter by worker selects the tasks that the worker holds, and those that no worker holds now and that it held last.
func TestFilterByWorker(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		ctx := t.Context()
		lease := func(worker string) *lessorv1.Assignment {
			res, err := r.workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: worker, Queues: []string{"q"}})
			if err != nil || len(res.GetAssignments()) != 1 {
				t.Fatalf("%v (%v), want one assignment", res, err)
			}
			return res.GetAssignments()[0]
		}
		for _, name := range []string{"done", "held", "moved", "waiting"} {
			r.submit(t, func(s *lessorv1.TaskSpec) {
				s.TaskKey, s.HeartbeatInterval, s.HeartbeatTimeout = name, durationpb.New(time.Second), durationpb.New(2*time.Second)
				if name == "moved" {
					s.Priority = 1 // it is the first one to be leased
				}
			})
		}
		lease("a") // moved
		r.complete(t, lease("a"), "")
		time.Sleep(3 * time.Second) // the lease of moved expires
		wantEqual(t, "the tasks of a, which has lost one", r.list(t, &lessorv1.TaskFilter{WorkerId: "a"}), "done moved")
		lease("b") // moved
		lease("a") // held
		for worker, want := range map[string]string{"a": "done held", "b": "moved", "c": "", "": "done held moved waiting"} {
			wantEqual(t, "the tasks of "+worker, r.list(t, &lessorv1.TaskFilter{WorkerId: worker}), want)
		}
		held := []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_LEASED}
		wantEqual(t, "those that a holds", r.list(t, &lessorv1.TaskFilter{WorkerId: "a", States: held}), "held")
		res, err := r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{WorkerId: "a"}})
		if got := res.GetResult(); err != nil || got.GetChanged() != 1 || got.GetSkipped() != 1 {
			t.Errorf("the delete of the tasks of a: %v (%v), want 1 changed, and the one that it holds skipped", got, err)
		}
		wantEqual(t, "the tasks that are left", r.list(t, nil), "held moved waiting")
	})
}

// A filter by time selects what was created from its first instant on, and before its last. A page token is only for the same instants.
func TestFilterByTime(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		ctx := t.Context()
		var at []*timestamppb.Timestamp
		for _, name := range []string{"1", "2", "3"} {
			task := r.submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey = name })
			at = append(at, task.GetCreatedAt())
			time.Sleep(time.Second)
		}
		next := func(ts *timestamppb.Timestamp) *timestamppb.Timestamp { return timestamppb.New(ts.AsTime().Add(1)) }
		for _, tt := range []struct {
			after, before *timestamppb.Timestamp
			want          string
		}{
			{at[1], nil, "2 3"},
			{next(at[1]), nil, "3"},
			{nil, at[1], "1"},
			{nil, next(at[1]), "1 2"},
			{at[1], next(at[1]), "2"},
			{at[0], at[2], "1 2"},
			{next(at[2]), nil, ""},
			{nil, at[0], ""},
		} {
			filter := &lessorv1.TaskFilter{CreatedAfter: tt.after, CreatedBefore: tt.before}
			wantEqual(t, "the tasks of "+filter.String(), r.list(t, filter), tt.want)
		}
		page, err := r.tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{CreatedBefore: at[2]}, PageSize: 1})
		if err != nil || page.GetNextPageToken() == "" {
			t.Fatalf("%v (%v), want a page token", page, err)
		}
		for _, filter := range []*lessorv1.TaskFilter{nil, {CreatedBefore: next(at[2])}, {CreatedAfter: at[2]}, {CreatedBefore: at[2], WorkerId: "w"}} {
			_, err := r.tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{Filter: filter, PageToken: page.GetNextPageToken()})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v with a page token of another filter: %v, want INVALID_ARGUMENT", filter, err)
			}
		}
		res, err := r.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{CreatedAfter: at[1], CreatedBefore: at[2]}})
		if err != nil || res.GetResult().GetChanged() != 1 {
			t.Errorf("the delete: %v (%v), want 1 changed", res, err)
		}
		wantEqual(t, "the tasks that are left", r.list(t, nil), "1 3")
	})
}

// S4: a bulk call with a condition that was left unset, or is impossible, is refused with its field, and changes nothing.
func TestBadConditionsOfABulkCall(t *testing.T) {
	t.Attr("rules", "S4")
	serve(t, nil, func(t *testing.T, r *rig) {
		r.submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey = "task" })
		now := timestamppb.Now()
		for field, filter := range map[string]*lessorv1.TaskFilter{
			"filter":                 {WorkerId: "", IdempotencyKey: ""},
			"filter.created_after":   {CreatedAfter: &timestamppb.Timestamp{}},
			"filter.created_before":  {CreatedAfter: now, CreatedBefore: now},
			"filter.worker_id":       {WorkerId: text(257)},
			"filter.idempotency_key": {IdempotencyKey: text(257)},
		} {
			_, err := r.tasks.BatchDeleteTasks(t.Context(), &lessorv1.BatchDeleteTasksRequest{Filter: filter})
			wantBadField(t, err, field)
		}
		wantEqual(t, "the tasks that are left", r.list(t, nil), "task")
	})
}
