package service_test

import (
	"math"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// T13: UpdateQueue changes only the fields that the request has. A zero or an empty message resets
// a field.
func TestUpdateQueueChangesOnlyItsFields(t *testing.T) {
	t.Attr("rules", "T13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		update := func(req *lessorv1.UpdateQueueRequest) *lessorv1.Queue {
			t.Helper()
			req.Name = "q"
			res, err := r.Admin.UpdateQueue(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return res.GetQueue()
		}
		yes, no, ten, none := true, false, uint32(10), uint32(0)
		update(&lessorv1.UpdateQueueRequest{Paused: &yes, MaxInflight: &ten})
		update(&lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{PerSecond: 0.5, Burst: 2}})
		update(&lessorv1.UpdateQueueRequest{FairnessWeights: map[string]float64{"gold": 3, "lead": 0.5}})
		update(&lessorv1.UpdateQueueRequest{RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1, InitialBackoff: durationpb.New(7)}})
		update(&lessorv1.UpdateQueueRequest{RetryPolicy: &lessorv1.RetryPolicy{MaxLosses: 4}})
		q := update(&lessorv1.UpdateQueueRequest{FairnessWeights: map[string]float64{"lead": 0, "tin": 1}})
		if !q.GetPaused() || q.GetMaxInflight() != 10 || q.GetRateLimit().GetPerSecond() != 0.5 || q.GetRateLimit().GetBurst() != 2 ||
			q.GetRetryPolicy().GetMaxAttempts() != 1 || q.GetRetryPolicy().GetMaxLosses() != 4 || len(q.GetFairnessWeights()) != 2 || q.GetFairnessWeights()["gold"] != 3 {
			t.Errorf("after six updates the queue is %v, want the last value of each field", q)
		}
		q = update(&lessorv1.UpdateQueueRequest{
			Paused: &no, MaxInflight: &none, RateLimit: &lessorv1.RateLimit{}, RetryPolicy: &lessorv1.RetryPolicy{},
			FairnessWeights: map[string]float64{"gold": 0, "tin": 0},
		})
		if q.GetPaused() || q.GetMaxInflight() != 0 || q.RateLimit != nil || q.RetryPolicy != nil || len(q.GetFairnessWeights()) != 0 {
			t.Errorf("after the reset of all fields the queue is %v, want no settings", q)
		}
	})
}

// T13, S4: a queue exists from its first submit or update on, and is NOT_FOUND before. A lease
// request for its tasks does not create it.
func TestUnknownQueueIsNotFound(t *testing.T) {
	t.Attr("rules", "T13 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		r.Submit(t, nil)
		if _, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"other"}}); err != nil {
			t.Fatal(err)
		}
		for name, err := range map[string]error{
			"get":       wiretest.ErrOf(r.Admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "other"})),
			"purge":     wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "other"})),
			"workspace": wiretest.ErrOf(r.Admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "q", WorkspaceId: "other"})),
		} {
			if st := status.Convert(err); st.Code() != codes.NotFound || refusal.CodeOf(err) != "E.QUEUE.NOT_FOUND" {
				t.Errorf("%s: %v, want NOT_FOUND", name, err)
			}
		}
	})
}

// T13: a purge deletes the waiting tasks of one queue, but not those that are leased or have ended.
func TestPurgeDeletesWaitingTasks(t *testing.T) {
	t.Attr("rules", "T13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		r.Submit(t, nil)
		r.Complete(t, r.Lease(t), "")
		r.Submit(t, nil)
		held := r.Lease(t)
		for range 3 {
			r.Submit(t, nil)
		}
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "other" })
		res, err := r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"})
		if err != nil || res.GetResult().GetChanged() != 3 || res.GetResult().GetNextPageToken() != "" {
			t.Fatalf("purge: %v (%v), want 3 deleted and no page token", res, err)
		}
		q, err := r.Admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "q"})
		if err != nil || q.GetQueue().GetReady() != 0 || q.GetQueue().GetLeased() != 1 {
			t.Errorf("the queue is %v (%v), want no ready and one leased task", q, err)
		}
		if done := r.Complete(t, held, ""); done.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("the report for the leased task: %v, want COMMITTED", done)
		}
		list, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{})
		if err != nil || len(list.GetTasks()) != 3 {
			t.Errorf("%d tasks are left (%v), want the two completed and the one of the other queue", len(list.GetTasks()), err)
		}
	})
}

// T13, S4: one call looks at 10,000 tasks at most. The next call continues with the page token, and
// leaves tasks that were submitted since the first call. The token is valid only for the same
// queue.
func TestPurgeContinuesWithAPageToken(t *testing.T) {
	t.Attr("rules", "T13 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "other" })
		specs := slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q"}}, 1000)
		for range 11 {
			if _, err := r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		held := r.Lease(t)
		first, err := r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"})
		token := first.GetResult().GetNextPageToken()
		if err != nil || first.GetResult().GetChanged() != 9_998 || first.GetResult().GetSkipped() != 0 || token == "" {
			t.Fatalf("first call: %v (%v), want 9998 deleted, none skipped, and a page token", first, err)
		}
		late := r.Submit(t, nil)
		wiretest.WantBadField(t, wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "other", PageToken: token})), "page_token")
		second, err := r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q", PageToken: token})
		if err != nil || second.GetResult().GetChanged() != 1001 || second.GetResult().GetSkipped() != 0 || second.GetResult().GetNextPageToken() != "" {
			t.Errorf("second call: %v (%v), want 1001 deleted, none skipped, and no page token", second, err)
		}
		if got := r.Get(t, late.GetTaskId()).GetState(); got != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("the task that was submitted after the first call is %v, want READY", got)
		}
		if q, err := r.Admin.GetQueue(ctx, &lessorv1.GetQueueRequest{Name: "other"}); err != nil || q.GetQueue().GetReady() != 1 {
			t.Errorf("the other queue is %v (%v), want its task", q, err)
		}
		if done := r.Complete(t, held, ""); done.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("the report for the leased task: %v, want COMMITTED", done)
		}
		wiretest.WantBadField(t, wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{})), "name")
		wiretest.WantBadField(t, wiretest.ErrOf(r.Admin.GetQueue(ctx, &lessorv1.GetQueueRequest{})), "name")
	})
}

// T13, S4: settings out of range are refused with the path of the field, and change nothing.
func TestBadQueueSettings(t *testing.T) {
	t.Attr("rules", "T13 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		much := uint32(math.MaxUint32)
		crowd := map[string]float64{}
		for i := range 1001 {
			crowd[string(rune('a'+i%26))+wiretest.Text(i/26)] = 1
		}
		for _, c := range []struct {
			field string
			req   *lessorv1.UpdateQueueRequest
		}{
			{"max_inflight", &lessorv1.UpdateQueueRequest{MaxInflight: &much}},
			{"rate_limit.per_second", &lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{PerSecond: math.NaN()}}},
			{"rate_limit.per_second", &lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{PerSecond: -1}}},
			{"rate_limit.per_second", &lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{PerSecond: math.Inf(1)}}},
			{"rate_limit.per_second", &lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{PerSecond: 1e-300}}},
			{"rate_limit.per_second", &lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{Burst: 1}}},
			{"rate_limit.burst", &lessorv1.UpdateQueueRequest{RateLimit: &lessorv1.RateLimit{PerSecond: 1, Burst: much}}},
			{"retry_policy.max_attempts", &lessorv1.UpdateQueueRequest{RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: much}}},
			{"retry_policy.initial_backoff", &lessorv1.UpdateQueueRequest{RetryPolicy: &lessorv1.RetryPolicy{InitialBackoff: durationpb.New(-1)}}},
			{`fairness_weights["gold"]`, &lessorv1.UpdateQueueRequest{FairnessWeights: map[string]float64{"gold": -1}}},
			{`fairness_weights["gold"]`, &lessorv1.UpdateQueueRequest{FairnessWeights: map[string]float64{"gold": math.NaN()}}},
			{"fairness_weights", &lessorv1.UpdateQueueRequest{FairnessWeights: crowd}},
		} {
			c.req.Name = "q"
			st := status.Convert(wiretest.ErrOf(r.Admin.UpdateQueue(t.Context(), c.req)))
			v := detail.Of[*errdetails.BadRequest](st).GetFieldViolations()
			if st.Code() != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != c.field {
				t.Errorf("%v: %v, want INVALID_ARGUMENT of %s", c.req, st, c.field)
			}
		}
		if st := status.Code(wiretest.ErrOf(r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"}))); st != codes.NotFound {
			t.Errorf("GetQueue after the refused updates: %v, want NOT_FOUND", st)
		}
	})
}

// T13: a purge in several calls goes on to its end also if the queue is forgotten meanwhile,
// because the first calls have deleted its last task.
func TestPurgeGoesOnWhenTheQueueIsForgotten(t *testing.T) {
	t.Attr("rules", "T13")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, func(spec *lessorv1.TaskSpec) { spec.Queue = "purged" })
		for range 11 { // more than one call looks at
			r.SubmitAll(t, 1000)
		}
		changed, calls := uint64(0), 0
		for token, more := "", true; more; more = token != "" {
			res, err := r.Admin.PurgeQueue(t.Context(), &lessorv1.PurgeQueueRequest{Name: "purged", PageToken: token})
			if err != nil {
				t.Fatalf("call %d: %v", calls+1, err)
			}
			changed, token = changed+res.GetResult().GetChanged(), res.GetResult().GetNextPageToken()
			calls++
		}
		if changed != 1 || calls != 2 {
			t.Errorf("%d tasks were deleted in %d calls, want 1 in 2", changed, calls)
		}
	})
}
