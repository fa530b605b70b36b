package service_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// list returns the task keys of the tasks that a filter selects, in one page that must be the last
// one.
func list(t *testing.T, r *wiretest.Rig, filter *lessorv1.TaskFilter) string {
	t.Helper()
	res, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{Filter: filter})
	if err != nil || res.GetNextPageToken() != "" {
		t.Errorf("%v: %v (%v), want all on one page", filter, res, err)
	}
	var keys []string
	for _, task := range res.GetTasks() {
		keys = append(keys, task.GetSpec().GetTaskKey())
	}
	return strings.Join(keys, " ")
}

// A list, a cancel, a retry and a delete of the task with an idempotency key look at no other
// tasks, however many there are, and find the task that has the key now.
func TestTaskOfAnIdempotencyKeyIsFoundWithoutOthers(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		submit := func(name, workspace, key string) {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey, s.WorkspaceId, s.IdempotencyKey = name, workspace, key })
		}
		submitLabelled(ctx, t, r, *service.MaxScan)
		submit("first", "", "key")
		submit("other", "", "other")
		submit("elsewhere", "ws", "key")
		byKey := &lessorv1.TaskFilter{IdempotencyKey: "key"}
		wiretest.WantEqual(t, "the tasks of the key", list(t, r, byKey), "first")
		wiretest.WantEqual(t, "those of a workspace",
			list(t, r, &lessorv1.TaskFilter{IdempotencyKey: "key", WorkspaceId: "ws"}), "elsewhere")
		wiretest.WantEqual(t, "those of a key that no task has", list(t, r, &lessorv1.TaskFilter{IdempotencyKey: "none"}), "")
		wiretest.WantEqual(t, "those of another queue",
			list(t, r, &lessorv1.TaskFilter{IdempotencyKey: "key", Queue: "none"}), "")
		held := []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_LEASED}
		wiretest.WantEqual(t, "those that are held", list(t, r, &lessorv1.TaskFilter{IdempotencyKey: "key", States: held}), "")

		check := func(verb string, res interface{ GetResult() *lessorv1.BatchResult }, err error, changed, skipped uint64) {
			t.Helper()
			if got := res.GetResult(); err != nil || got.GetChanged() != changed || got.GetSkipped() != skipped || got.GetNextPageToken() != "" {
				t.Errorf("%s: %v (%v), want %d changed, %d skipped and no more", verb, got, err, changed, skipped)
			}
		}
		cancel, err := r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: byKey})
		check("cancel", cancel, err, 1, 0)
		cancel, err = r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{Filter: byKey})
		check("cancel again", cancel, err, 0, 1)
		retry, err := r.Tasks.BatchRetryTasks(ctx, &lessorv1.BatchRetryTasksRequest{Filter: byKey})
		check("retry", retry, err, 1, 0)
		narrower := &lessorv1.TaskFilter{IdempotencyKey: "key", Queue: "none"}
		gone, err := r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: narrower})
		check("delete in another queue", gone, err, 0, 0)
		gone, err = r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: byKey})
		check("delete", gone, err, 1, 0)
		gone, err = r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: byKey})
		check("delete again", gone, err, 0, 0)

		wiretest.WantEqual(t, "the tasks of the key after the delete", list(t, r, byKey), "")
		submit("second", "", "key")
		wiretest.WantEqual(t, "those after another submit", list(t, r, byKey), "second")
		wiretest.WantEqual(t, "the others", list(t, r, &lessorv1.TaskFilter{IdempotencyKey: "other"}), "other")
	})
}

// A filter by worker selects the tasks that the worker holds, and those that no worker holds now
// and that it held last.
func TestFilterByWorker(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		lease := func(worker string) *lessorv1.Assignment {
			res, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: worker, Queues: []string{"q"}})
			if err != nil || len(res.GetAssignments()) != 1 {
				t.Fatalf("%v (%v), want one assignment", res, err)
			}
			return res.GetAssignments()[0]
		}
		for _, name := range []string{"done", "held", "moved", "waiting"} {
			r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.TaskKey, s.HeartbeatInterval, s.HeartbeatTimeout = name, durationpb.New(time.Second),
					durationpb.New(2*time.Second)
				if name == "moved" {
					s.Priority = 1 // it is the first one to be leased
				}
			})
		}
		lease("a") // moved
		r.Complete(t, lease("a"), "")
		time.Sleep(3 * time.Second) // the lease of moved expires
		wiretest.WantEqual(t, "the tasks of a, which has lost one", list(t, r, &lessorv1.TaskFilter{WorkerId: "a"}), "done moved")
		lease("b") // moved
		lease("a") // held
		for worker, want := range map[string]string{"a": "done held", "b": "moved", "c": "", "": "done held moved waiting"} {
			wiretest.WantEqual(t, "the tasks of "+worker, list(t, r, &lessorv1.TaskFilter{WorkerId: worker}), want)
		}
		held := []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_LEASED}
		wiretest.WantEqual(t, "those that a holds", list(t, r, &lessorv1.TaskFilter{WorkerId: "a", States: held}), "held")
		res, err := r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{WorkerId: "a"}})
		if got := res.GetResult(); err != nil || got.GetChanged() != 1 || got.GetSkipped() != 1 {
			t.Errorf("the delete of the tasks of a: %v (%v), want 1 changed, and the one that it holds skipped", got, err)
		}
		wiretest.WantEqual(t, "the tasks that are left", list(t, r, nil), "held moved waiting")
	})
}

// A filter by category selects the tasks whose last failed attempt had such an error, whatever
// became of them, also in bulk. An error without a category is USER_CODE, and that of an attempt
// that took too long TIMEOUT.
func TestFilterByErrorCategory(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		by := func(categories ...lessorv1.ErrorCategory) *lessorv1.TaskFilter {
			return &lessorv1.TaskFilter{ErrorCategories: categories}
		}
		const data, config, code, timeout = lessorv1.ErrorCategory_ERROR_CATEGORY_DATA_QUALITY,
			lessorv1.ErrorCategory_ERROR_CATEGORY_CONFIGURATION,
			lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT
		for i, name := range []string{"data", "config", "none", "slow", "done", "ready"} {
			r.Submit(t, func(s *lessorv1.TaskSpec) {
				s.TaskKey, s.Priority = name, -int32(i)
				if name == "slow" {
					s.AttemptTimeout = durationpb.New(time.Second)
				}
			})
		}
		failWith(t, r, r.Lease(t), data)
		failWith(t, r, r.Lease(t), config)
		failWith(t, r, r.Lease(t), 0)
		r.Start(t, r.Lease(t))
		r.Complete(t, r.Lease(t), "")
		time.Sleep(2 * time.Second)
		for want, f := range map[string]*lessorv1.TaskFilter{
			"data": by(data), "config": by(config), "none": by(code), "slow": by(timeout), "data slow": by(timeout, data), "": by(lessorv1.ErrorCategory_ERROR_CATEGORY_INFRASTRUCTURE),
			"data config none slow done ready": nil,
		} {
			wiretest.WantEqual(t, fmt.Sprint("the tasks of ", f), list(t, r, f), want)
		}
		time.Sleep(time.Minute)
		for range 3 { // none, slow and ready
			r.Complete(t, r.Lease(t), "")
		}
		wiretest.WantEqual(t, "one that was completed after its error", list(t, r, by(code)), "none")
		failed := by(code, data, config)
		failed.States = []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_FAILED}
		wiretest.WantEqual(t, "those that failed for good", list(t, r, failed), "data config")
		res, err := r.Tasks.BatchRetryTasks(t.Context(), &lessorv1.BatchRetryTasksRequest{Filter: by(data)})
		if got := res.GetResult(); err != nil || got.GetChanged() != 1 || got.GetSkipped() != 0 {
			t.Errorf("the retry of those with DATA_QUALITY: %v (%v), want 1 changed", got, err)
		}
	})
}

// A filter by time selects what was created from its first instant on, and before its last. A page
// token is only for the same instants.
func TestFilterByTime(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		var at []*timestamppb.Timestamp
		for _, name := range []string{"1", "2", "3"} {
			task := r.Submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey = name })
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
			wiretest.WantEqual(t, "the tasks of "+filter.String(), list(t, r, filter), tt.want)
		}
		page, err := r.Tasks.ListTasks(ctx,
			&lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{CreatedBefore: at[2]}, PageSize: 1})
		if err != nil || page.GetNextPageToken() == "" {
			t.Fatalf("%v (%v), want a page token", page, err)
		}
		for _, filter := range []*lessorv1.TaskFilter{nil, {CreatedBefore: next(at[2])}, {CreatedAfter: at[2]}, {CreatedBefore: at[2], WorkerId: "w"}} {
			_, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{Filter: filter, PageToken: page.GetNextPageToken()})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v with a page token of another filter: %v, want INVALID_ARGUMENT", filter, err)
			}
		}
		res, err := r.Tasks.BatchDeleteTasks(ctx,
			&lessorv1.BatchDeleteTasksRequest{Filter: &lessorv1.TaskFilter{CreatedAfter: at[1], CreatedBefore: at[2]}})
		if err != nil || res.GetResult().GetChanged() != 1 {
			t.Errorf("the delete: %v (%v), want 1 changed", res, err)
		}
		wiretest.WantEqual(t, "the tasks that are left", list(t, r, nil), "1 3")
	})
}

// S4: a bulk call with a condition that was left unset, or is impossible, is refused with its
// field, and changes nothing.
func TestBadConditionsOfABulkCall(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.TaskKey = "task" })
		now := timestamppb.Now()
		for field, filter := range map[string]*lessorv1.TaskFilter{
			"filter":                 {WorkerId: "", IdempotencyKey: ""},
			"filter.created_after":   {CreatedAfter: &timestamppb.Timestamp{}},
			"filter.created_before":  {CreatedAfter: now, CreatedBefore: now},
			"filter.worker_id":       {WorkerId: wiretest.Text(257)},
			"filter.idempotency_key": {IdempotencyKey: wiretest.Text(257)},
		} {
			_, err := r.Tasks.BatchDeleteTasks(t.Context(), &lessorv1.BatchDeleteTasksRequest{Filter: filter})
			wiretest.WantBadField(t, err, field)
		}
		wiretest.WantEqual(t, "the tasks that are left", list(t, r, nil), "task")
	})
}
