package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// V4, V5, V12: unary calls take a task from its submit to its result. The same Complete again is
// replayed, and another Complete is refused.
func TestTaskLifeByUnaryCalls(t *testing.T) {
	t.Attr("rules", "V4 V5 V12")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		time.Sleep(time.Hour) // so that no clock of the coordinator is at 0
		task := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload, s.Labels = []byte("in"), map[string]string{"a": "1"} })
		if task.GetState() != lessorv1.TaskState_TASK_STATE_READY || task.GetSpec().GetPayload() != nil || task.GetTenantId() != gate.DefaultTenant {
			t.Errorf("the submitted task is %v, want it READY, without payload, of the default tenant", task)
		}
		a := r.Lease(t)
		if string(a.GetTask().GetSpec().GetPayload()) != "in" || a.GetAttempt() != 1 || a.GetAttemptId() != task.GetTaskId()+"-1" {
			t.Errorf("the assignment is %v, want the payload and attempt 1", a)
		}
		if a.GetHeartbeatTimeout().AsDuration() != lease.DefaultHeartbeatTimeout || a.GetHeartbeatInterval().AsDuration() != lease.DefaultHeartbeatInterval {
			t.Errorf("the assignment is %v, want the default heartbeat interval and timeout", a)
		}
		if a.GetExpiresIn().AsDuration() != lease.DefaultHeartbeatTimeout || a.GetTask().GetHistory() != nil {
			t.Errorf("the assignment expires in %v and has the history %v, want %v and none",
				a.GetExpiresIn().AsDuration(), a.GetTask().GetHistory(), lease.DefaultHeartbeatTimeout)
		}
		if at := time.Now(); !a.GetServerTime().AsTime().Equal(at) || !a.GetExpiresAt().AsTime().Equal(at.Add(lease.DefaultHeartbeatTimeout)) {
			t.Errorf("the assignment has the server time %v and expires at %v, want %v and %v later",
				a.GetServerTime().AsTime(), a.GetExpiresAt().AsTime(), at, lease.DefaultHeartbeatTimeout)
		}
		r.Start(t, a)
		beat, err := r.Workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{
			TaskId: task.GetTaskId(), LeaseId: a.GetLeaseId(), Checkpoint: []byte("half"),
			Progress: &lessorv1.Progress{Fraction: 0.5, Message: "half way", Stage: "running"},
		})
		if err != nil || beat.GetTaskState() != lessorv1.TaskState_TASK_STATE_RUNNING {
			t.Fatalf("heartbeat: %v (%v)", beat, err)
		}
		time.Sleep(time.Millisecond) // the coordinator passes progress on after the answer
		if got := r.Get(t, task.GetTaskId()); got.GetProgress().GetFraction() != 0.5 || string(got.GetCheckpoint()) != "half" ||
			got.GetLease().GetFencingToken() != a.GetFencingToken() {
			t.Errorf("the running task is %v, want progress 0.5, the checkpoint, and the fencing token %d",
				got, a.GetFencingToken())
		}
		listed, err := r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{})
		if shown := r.Get(t, task.GetTaskId()).GetLease(); err != nil || !proto.Equal(listed.GetTasks()[0].GetLease(), shown) {
			t.Errorf("ListTasks shows %v (%v), want the lease %v, as GetTask", listed, err, shown)
		}
		if done := r.Complete(t, a, "out"); done.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED || done.GetReplayed() {
			t.Errorf("complete: %v, want COMMITTED", done)
		}
		if done := r.Complete(t, a, "out"); done.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED || !done.GetReplayed() {
			t.Errorf("the same complete again: %v, want the verdict replayed (V4)", done)
		}
		if done := r.Complete(t, a, "other"); done.GetReason() != lessorv1.Reason_REASON_DUPLICATE_REPORT {
			t.Errorf("another complete: %v, want DUPLICATE_REPORT (V5)", done)
		}
		got := r.Get(t, task.GetTaskId())
		if string(got.GetOutput()) != "out" || string(got.GetSpec().GetPayload()) != "in" || got.GetProgress().GetMessage() != "half way" ||
			got.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("the completed task is %v, want its output, its payload and its last progress", got)
		}
		if types := wiretest.EventTypes(got.GetHistory()); types != "SUBMITTED GRANTED STARTED COMPLETED REFUSED" {
			t.Errorf("the history is %s, want SUBMITTED GRANTED STARTED COMPLETED REFUSED", types)
		}
	})
}

// T1: a submit with the same idempotency key and the same spec returns the first task. With another
// spec it is refused, and the error has the path of the spec. A batch with such a spec makes no
// task.
func TestSubmitIsIdempotent(t *testing.T) {
	t.Attr("rules", "T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		spec := &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k", Payload: []byte("p")}
		first, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
		if err != nil || !first.GetCreated() {
			t.Fatalf("first submit: %v (%v)", first, err)
		}
		again, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec, RequestId: "other"})
		if err != nil || again.GetCreated() || again.GetTask().GetTaskId() != first.GetTask().GetTaskId() {
			t.Errorf("second submit: %v (%v), want the first task", again, err)
		}
		_, err = r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{
			{Queue: "q"}, {Queue: "q", IdempotencyKey: "k", Payload: []byte("other")},
		}})
		info := detail.Of[*errdetails.ErrorInfo](status.Convert(err))
		if status.Code(err) != codes.AlreadyExists || info.GetMetadata()["field"] != "tasks[1].idempotency_key" ||
			info.GetMetadata()["task_id"] != first.GetTask().GetTaskId() {
			t.Errorf("another spec: %v %v, want ALREADY_EXISTS", err, info)
		}
		list, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{})
		if err != nil || len(list.GetTasks()) != 1 {
			t.Errorf("%d tasks (%v), want 1: a refused batch must make none", len(list.GetTasks()), err)
		}
	})
}

// T1, S1: what a submit of a task that has failed already, and a retry of it, answer shows why it
// failed, as the task itself does, without the stack and with the beginning of a long message.
func TestAnswersShowTheError(t *testing.T) {
	t.Attr("rules", "T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx, spec := t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"}
		submit := func() *lessorv1.SubmitTaskResponse {
			m, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		if e := submit().GetTask().GetError(); e != nil {
			t.Errorf("the error of a new task is %v, want none", e)
		}
		a := r.Lease(t)
		failure := &lessorv1.TaskError{
			Category: lessorv1.ErrorCategory_ERROR_CATEGORY_DATA_QUALITY,
			Message:  strings.Repeat("no rows ", 200), StackTrace: "main.go:1",
		}
		_, err := r.Workers.Fail(ctx, &lessorv1.FailRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(),
			Error: failure,
		})
		if err != nil {
			t.Fatal(err)
		}
		again := submit()
		retried, err := r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: a.GetTask().GetTaskId()})
		if err != nil {
			t.Fatal(err)
		}
		want := &lessorv1.TaskError{Category: failure.GetCategory(), Message: failure.GetMessage()[:1<<10] + "..."}
		for what, task := range map[string]*lessorv1.Task{"second submit": again.GetTask(), "retry": retried.GetTask()} {
			if !proto.Equal(task.GetError(), want) {
				t.Errorf("the answer to the %s has the error %v, want %v", what, task.GetError(), want)
			}
		}
		if s := again.GetTask().GetState(); again.GetCreated() || s != lessorv1.TaskState_TASK_STATE_FAILED {
			t.Errorf("the second submit is answered with a task that is %v (created %t), want the one that FAILED",
				s, again.GetCreated())
		}
	})
}

// Every way to submit makes the task in the workspace of its spec, and returns its id and its
// state. The history names who cancelled and who retried a task, also if that was by a filter.
func TestSubmitsNameTheTask(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx, spec := t.Context(), &lessorv1.TaskSpec{Queue: "q", WorkspaceId: "ws"}
		single, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: []*lessorv1.TaskSpec{spec}})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := r.Tasks.SubmitStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{spec}}) // Recv returns the error
		frame, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		results := []*lessorv1.SubmitResult{
			{TaskId: single.GetTask().GetTaskId(), Created: single.GetCreated(), State: single.GetTask().GetState()},
			batch.GetResults()[0], frame.GetResults()[0],
		}
		for _, one := range results {
			if one.GetState() != lessorv1.TaskState_TASK_STATE_READY || !one.GetCreated() {
				t.Errorf("the result is %v, want a created READY task", one)
			}
			wiretest.WantEqual(t, "the workspace", r.Get(t, one.GetTaskId()).GetSpec().GetWorkspaceId(), "ws")
		}
		id := results[0].GetTaskId()
		filter := &lessorv1.TaskFilter{WorkspaceId: "ws"}
		for _, err := range []error{
			wiretest.ErrOf(r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id, Reason: "by id"})),
			wiretest.ErrOf(r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})),
			wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx,
				&lessorv1.BatchCancelTasksRequest{Filter: filter, All: true, Reason: "by filter"})),
			wiretest.ErrOf(r.Tasks.BatchRetryTasks(ctx, &lessorv1.BatchRetryTasksRequest{Filter: filter, All: true})),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, e := range r.Get(t, id).GetHistory()[1:] {
			got = append(got, fmt.Sprintf("%s by %s: %s",
				strings.TrimPrefix(e.GetType().String(), "HISTORY_EVENT_TYPE_"), e.GetActor(), e.GetDetail()))
		}
		wiretest.WantEqual(t, "the history", strings.Join(got, ", "),
			"CANCEL_REQUESTED by anonymous: by id, RETRIED by anonymous: , "+
				"CANCEL_REQUESTED by anonymous: by filter, RETRIED by anonymous: ")
	})
}

// S4: a bad field is refused with INVALID_ARGUMENT and its path, and the request changes nothing.
func TestBadRequests(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		task := r.Submit(t, nil).GetTaskId()
		long := wiretest.Text(257)
		many := make([]*lessorv1.TaskSpec, 1001)
		for i := range many {
			many[i] = &lessorv1.TaskSpec{Queue: "q"}
		}
		leaseWith := func(change func(*lessorv1.LeaseRequest)) error {
			req := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}
			change(req)
			return wiretest.ErrOf(r.Workers.Lease(ctx, req))
		}
		submit := func(s *lessorv1.TaskSpec) error {
			return wiretest.ErrOf(r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: s}))
		}
		for _, tt := range []struct {
			field string
			err   error
		}{
			{"task", submit(nil)},
			{"task.queue", submit(&lessorv1.TaskSpec{})},
			{"task.deadline", submit(&lessorv1.TaskSpec{Queue: "q", Deadline: &timestamppb.Timestamp{}})},
			{"request_id", wiretest.ErrOf(r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: task, RequestId: long}))},
			{"reason", wiretest.ErrOf(r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: task, Reason: wiretest.Text(1025)}))},
			{"request_id", wiretest.ErrOf(r.Tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: task, RequestId: long}))},
			{"request_id", wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true, RequestId: long}))},
			{"tasks", wiretest.ErrOf(r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{}))},
			{"tasks", wiretest.ErrOf(r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: many}))},
			{"tasks[1].queue", wiretest.ErrOf(r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{
				Tasks: []*lessorv1.TaskSpec{{Queue: "q"}, {}},
			}))},
			{"task_id", wiretest.ErrOf(r.Tasks.GetTask(ctx, &lessorv1.GetTaskRequest{}))},
			{"deadline", wiretest.ErrOf(r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: task, Deadline: &timestamppb.Timestamp{Nanos: -1}}))},
			{"filter.states[0]", wiretest.ErrOf(r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{
				Filter: &lessorv1.TaskFilter{States: []lessorv1.TaskState{99}},
			}))},
			{"page_size", wiretest.ErrOf(r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{PageSize: 1001}))},
			{"page_token", wiretest.ErrOf(r.Tasks.ListTasks(ctx, &lessorv1.ListTasksRequest{PageToken: "x"}))},
			{"worker_id", leaseWith(func(m *lessorv1.LeaseRequest) { m.WorkerId = "" })},
			{"queues", leaseWith(func(m *lessorv1.LeaseRequest) { m.Queues = nil })},
			{"queues[1]", leaseWith(func(m *lessorv1.LeaseRequest) { m.Queues = []string{"q", ""} })},
			{"max_tasks", leaseWith(func(m *lessorv1.LeaseRequest) { m.MaxTasks = 1001 })},
			{"wait", leaseWith(func(m *lessorv1.LeaseRequest) { m.Wait = durationpb.New(-1) })},
			{"capabilities.types[0]", leaseWith(func(m *lessorv1.LeaseRequest) {
				m.Capabilities = &lessorv1.Capabilities{Types: []string{"a\nb"}}
			})},
			{"workspace_id", wiretest.ErrOf(r.Admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{WorkspaceId: long}))},
			{"queue", wiretest.ErrOf(r.Admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{Queue: long}))},
			{"reason", wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx, &lessorv1.BatchCancelTasksRequest{All: true, Reason: wiretest.Text(1025)}))},
			{"request_id", leaseWith(func(m *lessorv1.LeaseRequest) { m.RequestId = long })},
		} {
			wiretest.WantBadField(t, tt.err, tt.field)
		}
		if got := r.Get(t, task); got.GetState() != lessorv1.TaskState_TASK_STATE_READY || got.GetCancelRequestedAt() != nil {
			t.Errorf("a refused request changed the task: %v", got)
		}
	})
}

// S4: every call about a task answers NOT_FOUND for an unknown id, and also for an id of a wrong
// form.
func TestUnknownTasksAreNotFound(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		r.Submit(t, nil)
		unknown := lease.TaskID{Space: 1, Seq: 1 << 40}.String()
		for _, id := range []string{unknown, lease.TaskID{Space: 999, Seq: 1}.String(), "nonsense"} {
			for name, err := range map[string]error{
				"get":     wiretest.ErrOf(r.Tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})),
				"cancel":  wiretest.ErrOf(r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})),
				"retry":   wiretest.ErrOf(r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})),
				"delete":  wiretest.ErrOf(r.Tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id})),
				"watch":   wiretest.ErrOf(wiretest.WatchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id})),
				"adopt":   wiretest.ErrOf(r.Tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: id})),
				"explain": wiretest.ErrOf(r.Tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})),
			} {
				if status.Code(err) != codes.NotFound {
					t.Errorf("%s %s: %v, want NOT_FOUND", name, id, err)
				}
			}
		}
		if strings.Contains(r.Log.String(), "read of the store failed") {
			t.Error("the log says that the store could not be read")
		}
	})
}

// T9: a command that the task's state does not allow is refused with FAILED_PRECONDITION, and the
// error names the state.
func TestWrongStatesAreNamed(t *testing.T) {
	t.Attr("rules", "T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		wantState := func(name string, err error, state string) {
			t.Helper()
			info := detail.Of[*errdetails.ErrorInfo](status.Convert(err))
			if status.Code(err) != codes.FailedPrecondition || info.GetMetadata()["state"] != state {
				t.Errorf("%s: %v %v, want FAILED_PRECONDITION in %s", name, err, info, state)
			}
		}
		id := r.Submit(t, nil).GetTaskId()
		_, err := r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id})
		wantState("retry", err, "READY")
		a := r.Lease(t)
		_, err = r.Tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id})
		wantState("delete", err, "LEASED")
		r.Complete(t, a, "")
		_, err = r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id})
		wantState("cancel", err, "COMPLETED")
	})
}

// T7, T9: a task can be cancelled (also twice), retried with a new deadline, and deleted by force
// while it is leased.
func TestCancelRetryDelete(t *testing.T) {
	t.Attr("rules", "T7 T9")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx := t.Context()
		id := r.Submit(t, nil).GetTaskId()
		for range 2 { // the second time the answer is the same
			c, err := r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id, Reason: "not needed"})
			if err != nil || c.GetTask().GetState() != lessorv1.TaskState_TASK_STATE_CANCELLED || c.GetTask().GetCancelReason() != "not needed" {
				t.Errorf("cancel: %v (%v), want the task CANCELLED with its reason", c, err)
			}
		}
		later := timestamppb.New(time.Now().Add(time.Hour))
		again, err := r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id, Deadline: later})
		if err != nil || again.GetTask().GetRound() != 2 || again.GetTask().GetState() != lessorv1.TaskState_TASK_STATE_READY ||
			!again.GetTask().GetSpec().GetDeadline().AsTime().Equal(later.AsTime()) {
			t.Errorf("retry: %v (%v), want the task READY in round 2 with the new deadline", again, err)
		}
		if types := wiretest.EventTypes(r.Get(t, id).GetHistory()); types != "SUBMITTED CANCEL_REQUESTED RETRIED" {
			t.Errorf("the history is %s, want SUBMITTED CANCEL_REQUESTED RETRIED", types)
		}
		a := r.Lease(t)
		if _, err := r.Tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, Force: true}); err != nil {
			t.Errorf("delete: %v", err)
		}
		if done := r.Complete(t, a, ""); done.GetReason() != lessorv1.Reason_REASON_TASK_GONE {
			t.Errorf("complete after delete: %v, want TASK_GONE (V8)", done)
		}
	})
}

// S6: every field of an explanation has its place in the answer of ExplainTask.
func TestExplanationIsShown(t *testing.T) {
	t.Attr("rules", "S6")
	at := func(n int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Nanos: int32(n)} }
	got := service.ExplanationProto(&lease.Explanation{
		Task: &lease.Task{ID: lease.TaskID{Space: 1, Seq: 5}, Rest: lease.Scheduled, Last: lease.Ended{
			Attempt: 3, Cause: lease.LeaseExpired, At: 15, Worker: "w", GrantedAt: 11, AckedAt: 12, StartedAt: 13,
			HeartbeatAt: 14,
		}},
		Findings: []lease.Finding{
			{Code: lease.FoundLeased, Message: "first", Since: 1, Until: 2, Remedy: "wait"}, {Code: lease.FoundLateResult, Message: "second"},
		},
		Story: "story", Detail: "detail",
		Refusals: []lease.Refusal{{
			Event: lease.Event{
				At: 21, Attempt: 2, Actor: "v", Kind: lease.KindComplete, Reason: lease.Superseded,
				Detail: "late",
			},
			LateBy: time.Second,
		}, {Event: lease.Event{At: 22, Attempt: 3}}},
	})
	want := &lessorv1.ExplainTaskResponse{
		TaskId: lease.TaskID{Space: 1, Seq: 5}.String(), State: lessorv1.TaskState_TASK_STATE_SCHEDULED,
		Summary: "SCHEDULED: first",
		Findings: []*lessorv1.Finding{
			{Code: lessorv1.FindingCode(lease.FoundLeased), Message: "first", Since: at(1), Until: at(2), Remedy: "wait"},
			{Code: lessorv1.FindingCode(lease.FoundLateResult), Message: "second"},
		},
		LastLease: &lessorv1.LeaseStory{
			Attempt: 3, WorkerId: "w", GrantedAt: at(11), AckedAt: at(12), StartedAt: at(13), HeartbeatAt: at(14),
			EndedAt: at(15),
			Cause:   lessorv1.Reason_REASON_LEASE_EXPIRED, Message: "story", Detail: "detail",
		},
		Refusals: []*lessorv1.Refusal{{
			At: at(21), Attempt: 2, WorkerId: "v", Kind: lessorv1.RefusedKind_REFUSED_KIND_COMPLETE,
			Verdict: lessorv1.Verdict_VERDICT_CANCELLED,
			Reason:  lessorv1.Reason_REASON_SUPERSEDED, Detail: "late", LateBy: durationpb.New(time.Second),
		}, service.RefusalProto(&lease.Refusal{Event: lease.Event{At: 22, Attempt: 3}})},
	}
	if !proto.Equal(got, want) {
		t.Errorf("shown is\n%v\nwant\n%v", got, want)
	}
}

// The traceparent of a submit reaches the worker; a malformed one is ignored.
func TestTraceparentReachesTheWorker(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		for sent, want := range map[string]string{trace: trace, "nonsense": ""} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", sent)
			if _, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
				t.Fatal(err)
			}
			if got := r.Lease(t).GetTraceparent(); got != want {
				t.Errorf("the traceparent %q arrives as %q, want %q", sent, got, want)
			}
		}
	})
}

// submitLabelled submits tasks in batches. Task i has the task_key i and the label n=i%2.
func submitLabelled(ctx context.Context, t *testing.T, r *wiretest.Rig, total int) {
	t.Helper()
	for done := 0; done < total; done += 1000 {
		specs := make([]*lessorv1.TaskSpec, min(1000, total-done))
		for i := range specs {
			specs[i] = &lessorv1.TaskSpec{
				Queue: "q", TaskKey: fmt.Sprint(done + i),
				Labels: map[string]string{"n": fmt.Sprint((done + i) % 2)},
			}
		}
		if _, err := r.Tasks.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
			t.Fatal(err)
		}
	}
}

// The pages of ListTasks have every matching task once, oldest first. A page token is valid only
// for the same filter.
func TestListTasksInPages(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		submitLabelled(t.Context(), t, r, 250)
		req := &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{Labels: map[string]string{"n": "1"}}, PageSize: 50}
		next, pages := 1, 0
		for {
			res, err := r.Tasks.ListTasks(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			pages++
			if n := len(res.GetTasks()); n > 50 {
				t.Errorf("a page of 50 has %d tasks", n)
			}
			for _, task := range res.GetTasks() {
				if task.GetSpec().GetTaskKey() != fmt.Sprint(next) {
					t.Fatalf("the task listed is %s, want %d", task.GetSpec().GetTaskKey(), next)
				}
				next += 2
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				break
			}
			_, err = r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{PageToken: req.PageToken})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("a page token of another filter: %v, want INVALID_ARGUMENT", err)
			}
		}
		if next != 251 || pages != 3 {
			t.Errorf("the tasks before %d were listed in %d pages, want those before 251 in 3", next, pages)
		}
	})
}

// A page of ListTasks ends early if its tasks are large, so that it fits into a message.
func TestPageOfLargeTasksFitsIntoAMessage(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		labels := map[string]string{}
		for i := range 64 {
			labels[fmt.Sprintf("%0256d", i)] = wiretest.Text(256)
		}
		const total = 150 // 4.8 MiB
		specs := slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q", Labels: labels}}, total/3)
		for range 3 {
			if _, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		for req := (&lessorv1.ListTasksRequest{PageSize: total}); ; {
			res, err := r.Tasks.ListTasks(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if n := proto.Size(res); n > *service.MaxPageBytes+64<<10 {
				t.Errorf("a page has %d bytes, want at most %d and one task more", n, *service.MaxPageBytes)
			}
			got += len(res.GetTasks())
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		if got != total {
			t.Errorf("%d tasks were listed, want %d", got, total)
		}
	})
}

// ListTasks shows the error of a task whose attempt has failed.
func TestListTasksShowsErrors(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		a := r.Lease(t)
		_, err := r.Workers.Fail(t.Context(), &lessorv1.FailRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{Message: "no disk"},
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{})
		if err != nil || res.GetTasks()[0].GetError().GetMessage() != "no disk" {
			t.Errorf("%v (%v), want one task with the error \"no disk\"", res, err)
		}
	})
}

// One call of ListTasks looks at no more than maxScan tasks, so a page may be empty and still have
// a token for the next page.
func TestListTasksScansABoundedNumber(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		submitLabelled(t.Context(), t, r, *service.MaxScan)
		want := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId, s.Labels = "run", map[string]string{"last": ""} })
		run, err := r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{RunId: "run"}})
		if err != nil || len(run.GetTasks()) != 1 || run.GetTasks()[0].GetTaskId() != want.GetTaskId() || run.GetNextPageToken() != "" {
			t.Errorf("the tasks of the run: %v (%v), want its task and no token, as it looks at no others", run, err)
		}
		markOlderTasks(t, st, want.GetTaskId()) // then it has to look at the others
		for _, filter := range []*lessorv1.TaskFilter{{Labels: map[string]string{"last": ""}}, {RunId: "run"}} {
			req := &lessorv1.ListTasksRequest{Filter: filter}
			res, err := r.Tasks.ListTasks(t.Context(), req)
			if err != nil || len(res.GetTasks()) != 0 || res.GetNextPageToken() == "" {
				t.Fatalf("%v: first page: %v (%v), want an empty one with a token", filter, res, err)
			}
			req.PageToken = res.GetNextPageToken()
			res, err = r.Tasks.ListTasks(t.Context(), req)
			if err != nil || len(res.GetTasks()) != 1 || res.GetTasks()[0].GetTaskId() != want.GetTaskId() || res.GetNextPageToken() != "" {
				t.Errorf("%v: second page: %v (%v), want the task and no token", filter, res, err)
			}
			req.PageToken, req.NewestFirst = "", true
			for _, want := range []int{1, 0} {
				res, err := r.Tasks.ListTasks(t.Context(), req)
				if req.PageToken = res.GetNextPageToken(); err != nil || len(res.GetTasks()) != want || (req.PageToken == "") != (want == 0) {
					t.Errorf("%v, newest first: %v (%v), want the task and a token, then neither", filter, res, err)
				}
			}
		}
	})
}

// A list of tasks that workers hold looks at no other tasks, however many there are, and has them
// in the order of other lists.
func TestListOfHeldTasksLooksAtNoOthers(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var all []string
		for i := range 4 {
			if i == 2 {
				submitLabelled(t.Context(), t, r, *service.MaxScan)
			}
			all = append(all, r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "held" }).GetTaskId())
		}
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue, s.WorkspaceId = "held", "other" })
		for _, workspace := range []string{"", "other"} {
			res, err := r.Workers.Lease(t.Context(),
				&lessorv1.LeaseRequest{WorkerId: "w", WorkspaceId: workspace, Queues: []string{"held"}, MaxTasks: 4})
			if err != nil {
				t.Fatal(err)
			}
			r.Start(t, res.GetAssignments()[0])
		}
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: all[3]}); err != nil {
			t.Fatal(err)
		}
		const size = 3
		const leased, running, cancelling = lessorv1.TaskState_TASK_STATE_LEASED, lessorv1.TaskState_TASK_STATE_RUNNING,
			lessorv1.TaskState_TASK_STATE_CANCELLING
		for _, tt := range []struct {
			states []lessorv1.TaskState
			queue  string
			want   []string
		}{
			{[]lessorv1.TaskState{running}, "", all[:1]},
			{[]lessorv1.TaskState{leased}, "held", all[1:3]},
			{[]lessorv1.TaskState{leased, running, cancelling}, "", all},
			{[]lessorv1.TaskState{leased, running, cancelling}, "q", nil},
		} {
			for _, newestFirst := range []bool{false, true} {
				var got []string
				req := &lessorv1.ListTasksRequest{
					Filter:   &lessorv1.TaskFilter{States: tt.states, Queue: tt.queue},
					PageSize: size, NewestFirst: newestFirst,
				}
				for pages := 1; ; pages++ {
					res, err := r.Tasks.ListTasks(t.Context(), req)
					if err != nil {
						t.Fatal(err)
					}
					for _, task := range res.GetTasks() {
						got = append(got, task.GetTaskId())
					}
					if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
						break
					}
					if pages*size > len(tt.want) {
						t.Fatalf("%v: there is another page after %d, which have room for all", req, pages)
					}
				}
				if newestFirst {
					slices.Reverse(got)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%v: got %q in the order of the submits, want %q", req, got, tt.want)
				}
			}
		}
	})
}

// markOlderTasks makes a store as if the tasks up to this one were older than the index of runs.
func markOlderTasks(t *testing.T, st store.Store, last string) {
	t.Helper()
	id, ok := lease.ParseTaskID(last)
	if !ok {
		t.Fatalf("%q is no task id", last)
	}
	var b store.Batch
	b.Put(store.Run, store.AppendGroupKey(nil, store.OlderTasks, id), nil)
	if err := st.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}
