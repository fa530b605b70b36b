package coordinator_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// X5: no quota refuses the calls that renew leases, report, stop something (RotateKey and
// UpdateQueue can do that), or ask for health. Every other call can be refused.
func TestCallsThatNoQuotaRefuses(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Calls: quota.Rate{PerSecond: 1.0 / 3600}}, func(t *testing.T, r *wiretest.Rig) {
		var never []string
		_ = r.Invoke(t.Context(), lessorv1.AdminService_GetStatus_FullMethodName)
		for _, method := range r.Methods() {
			err := r.Invoke(t.Context(), method)
			if status.Code(err) != codes.ResourceExhausted {
				never = append(never, method[strings.LastIndexByte(method, '/')+1:])
				continue
			}
			wiretest.WantQuotaError(t, err, quota.Calls, "tenant", "0.0002777777777777778/s")
		}
		slices.Sort(never)
		want := []string{
			"BatchCancelTasks", "CancelTask", "Check", "Complete", "DrainWorker", "Fail", "Heartbeat", "KickWorker", "List", "Release", "RevokeToken",
			"RotateKey", "Session", "Start", "UpdateQueue", "Watch",
		}
		// AuthService is refused before quotas are looked at, because this coordinator has no
		// credentials.
		never = slices.DeleteFunc(never,
			func(m string) bool { return slices.Contains([]string{"CreateToken", "ListKeys", "ListTokens"}, m) })
		if !slices.Equal(never, want) {
			t.Errorf("calls that were not refused:\n%q\nwant\n%q", never, want)
		}
	})
}

// X5: a call over the rate is refused with the wait after which it succeeds. Heartbeats and reports
// are not refused, nor are calls of other tenants.
func TestQuotaOfCalls(t *testing.T) {
	t.Attr("rules", "X5")
	cfg := coordinator.Config{Auth: &gate.Auth{}, Quotas: quota.Config{
		Tenant:     quota.Limits{Calls: quota.Rate{PerSecond: 2, Burst: 6}},
		Credential: quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 4}},
	}}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		ctx := r.OperatorContext(t, "acme")
		if _, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		given, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
		if err != nil || len(given.GetAssignments()) != 1 {
			t.Fatal(given, err)
		}
		a := given.GetAssignments()[0]
		get := func(ctx context.Context) error {
			_, err := r.Tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: a.GetTask().GetTaskId()})
			return err
		}
		for range 2 {
			if err := get(ctx); err != nil {
				t.Fatal(err)
			}
		}
		wait := wiretest.WantQuotaError(t, get(ctx), quota.Calls, "credential", "1/s:4")
		for range 100 {
			res, err := r.Workers.Heartbeat(ctx,
				&lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
			if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Fatalf("heartbeat: %v (%v)", res, err)
			}
		}
		if err := get(r.OperatorContext(t, "other")); err == nil || status.Code(err) != codes.NotFound {
			t.Errorf("another tenant's call: %v, want NOT_FOUND", err)
		}
		second := r.OperatorContext(t, "acme")
		for range 2 {
			if err := get(second); err != nil {
				t.Fatal(err)
			}
		}
		wiretest.WantQuotaError(t, get(second), quota.Calls, "tenant", "2/s:6")
		time.Sleep(wait)
		if err := get(ctx); err != nil {
			t.Errorf("a call after the wait of the refusal: %v", err)
		}
		res, err := r.Workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
		if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("complete: %v (%v)", res, err)
		}
	})
}

// X5: each HTTP request counts as one call, also if its body is bad. With a burst of one and one
// call per second, every second request is refused.
func TestHTTPRequestCountsAsOneCall(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.ServeWith(t, nil, coordinator.Config{Quotas: quota.Config{Tenant: quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 1}}}}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		made := w.Send(http.MethodPost, "/v1/tasks", "", `{"queue": "q"}`)
		made.Want(t, http.StatusCreated)
		path := "/v1/tasks/" + made.Body["task"].(map[string]any)["taskId"].(string)
		for _, c := range []struct {
			method, path, body, after string
			status                    int
		}{
			{http.MethodHead, path + "/events", "", "", http.StatusOK},
			{http.MethodPost, "/v1/tasks", `{"queue": "q", "unknown": 1}`, "", http.StatusBadRequest},
			{http.MethodPost, "/v1/tasks", `{"queue": "q", "payload": 1, "payloadBase64": "MQ=="}`, "", http.StatusBadRequest},
			{http.MethodPost, "/v1/tasks", `{"queue": "` + strings.Repeat("q", 5<<20) + `"}`, "", http.StatusRequestEntityTooLarge},
			{http.MethodPost, "/v1/leases", `{"workerId"`, "", http.StatusBadRequest},
			{http.MethodGet, path, "", "", http.StatusOK},
			{http.MethodPost, path + ":cancel", "", "", http.StatusOK},
			{http.MethodGet, path + "/events", "", "", http.StatusOK},
			{http.MethodGet, path + "/events", "", "1", http.StatusOK},
			{http.MethodGet, path + "/events", "", "2", http.StatusNoContent},
			{http.MethodHead, path + "/events", "", "2", http.StatusNoContent},
			{http.MethodPost, "/v1/leases", `{"workerId": "w", "queues": ["q"]}`, "", http.StatusOK},
		} {
			time.Sleep(time.Second)
			w.SendWith(c.method, c.path, "", strings.NewReader(c.body),
				http.Header{"Last-Event-Id": {c.after}}).Named(c.after).Want(t, c.status)
			if c.status >= http.StatusBadRequest {
				w.Send(c.method, c.path, "", c.body).Want(t, http.StatusTooManyRequests, "code", "E.QUOTA.CALLS")
			}
			if c.path != path+":cancel" { // quotas neither refuse nor count a cancel
				w.Send(http.MethodGet, path, "", "").Want(t, http.StatusTooManyRequests, "code", "E.QUOTA.CALLS")
			}
		}
	})
}

// X4, X5: a refusal by a quota is in the audit, once a minute, if the call is audited. Refusals of
// other calls are not.
func TestRefusalsByQuotasAreAudited(t *testing.T) {
	t.Attr("rules", "X4 X5")
	cfg := coordinator.Config{
		Auth:   &gate.Auth{},
		Quotas: quota.Config{Tenant: quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 1}}}, HostTenant: "acme",
	}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		ctx := r.OperatorContext(t, "acme")
		id := lease.TaskID{Space: 1, Seq: 1}.String()
		_ = wiretest.ErrOf(r.Tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id}))
		for range 3 {
			wiretest.WantQuotaError(t, wiretest.ErrOf(r.Tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, RequestId: "r1"})), quota.Calls, "tenant", "1/s:1")
			wiretest.WantQuotaError(t, wiretest.ErrOf(r.Tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})),
				quota.Calls, "tenant", "1/s:1")
			copied, err := r.Admin.Backup(ctx, &lessorv1.BackupRequest{})
			if err == nil {
				_, err = copied.Recv()
			}
			wiretest.WantQuotaError(t, err, quota.Calls, "tenant", "1/s:1")
		}
		time.Sleep(time.Second)
		var got []string
		for _, e := range r.AuditEvents(ctx, t, wiretest.WholeAudit()) {
			if e.GetAction() != "CreateToken" {
				got = append(got, strings.Join([]string{e.GetAction(), e.GetObject(), e.GetRequestId(), e.GetOutcome()}, " "))
			}
		}
		if want := []string{"DeleteTask " + id + " r1 E.QUOTA.CALLS", "Backup   E.QUOTA.CALLS"}; !slices.Equal(got, want) {
			t.Errorf("the audit has %q, want %q", got, want)
		}
	})
}

// X5: submits over the rate are refused and make no task. A batch is refused as a whole; each item
// of a stream's frame is refused on its own.
func TestQuotaOfSubmits(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Submits: quota.Rate{PerSecond: 10, Burst: 20}}, func(t *testing.T, r *wiretest.Rig) {
		specs := slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q"}}, 15)
		if _, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
			t.Fatal(err)
		}
		_, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs})
		if wait := wiretest.WantQuotaError(t, err, quota.Submits, "tenant", "10/s:20"); wait != time.Second {
			t.Errorf("wait %v, want 1 s", wait)
		}
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		frame := func() *lessorv1.SubmitStreamResponse {
			_ = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: specs}) // Recv returns the error
			res, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		for _, one := range frame().GetResults() {
			if e := one.GetError(); e.GetCode() != "E.QUOTA.SUBMITS" || e.GetRetryAfter().AsDuration() != time.Second {
				t.Fatalf("%v, want a refusal with a wait of 1 s", one)
			}
		}
		time.Sleep(time.Second)
		for _, one := range frame().GetResults() {
			if !one.GetCreated() {
				t.Fatalf("after the wait of the refusal: %v, want a created task", one)
			}
		}
		q, err := r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"})
		if err != nil || q.GetQueue().GetReady() != 30 {
			t.Errorf("the queue is %v (%v), want 30 ready tasks", q, err)
		}
	})
}

// X5: the status has each limit of the tenant with its use. The use of the quota of tasks is the
// number of tasks that have not ended.
func TestStatusHasTheUseOfQuotas(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Tasks: 5, Streams: 4, Watches: 3}, func(t *testing.T, r *wiretest.Rig) {
		for range 3 {
			r.Submit(t, nil)
		}
		a := r.Lease(t)
		defer wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: a.GetTask().GetTaskId()})()
		other := r.Lease(t)
		r.Complete(t, other, "")
		res, err := r.Admin.GetStatus(t.Context(), &lessorv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, q := range res.GetQuotas() {
			got[q.GetLimit()] = fmt.Sprint(q.GetOf(), " ", q.GetUsed(), " of ", q.GetValue())
		}
		for limit, want := range map[string]string{"tasks": "tenant 2 of 5", "streams": "tenant 1 of 4", "watches": "tenant 1 of 3"} {
			wiretest.WantEqual(t, limit, got[limit], want)
		}
	})
}

// X5: a stream or a watch counts until it ends, however it ends. A refused one does not count.
func TestQuotaOfStreams(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Streams: 3, Watches: 2}, func(t *testing.T, r *wiretest.Rig) {
		task := r.Submit(t, nil)
		watch := func() (context.CancelFunc, error) {
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := r.Tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: task.GetTaskId()})
			if err == nil {
				_, err = stream.Recv()
			}
			return cancel, err
		}
		for range 3 { // each round needs all places again
			var open []context.CancelFunc
			for range 2 {
				cancel, err := watch()
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, cancel)
			}
			for range 3 {
				cancel, err := watch()
				wiretest.WantQuotaError(t, err, quota.Watches, "tenant", "2")
				cancel()
			}
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := r.Tasks.SubmitStream(ctx); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			_, err := r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"empty"}})
			wiretest.WantQuotaError(t, err, quota.Streams, "tenant", "3")
			for _, end := range append(open, cancel) {
				end()
			}
			synctest.Wait()
		}
	})
}

// X5: a health watch with a credential counts as a stream, because that credential lifts the limit
// of those without one. Nothing else is asked of health checks.
func TestQuotaOfHealthWatches(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}, Quotas: quota.Config{Tenant: quota.Limits{Streams: 1}}}, func(t *testing.T, r *wiretest.Rig) {
		ctx := r.OperatorContext(t, "acme")
		watch := func(ctx context.Context) error {
			stream, err := r.Health.Watch(ctx, &healthv1.HealthCheckRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		if err := watch(ctx); err != nil {
			t.Fatal(err)
		}
		wiretest.WantQuotaError(t, watch(ctx), quota.Streams, "tenant", "1")
		for range 3 {
			if err := watch(t.Context()); err != nil {
				t.Errorf("a health watch without a credential: %v", err)
			}
			if _, err := r.Health.Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
				t.Errorf("a health check: %v", err)
			}
		}
	})
}

// X5: a session over the quota is refused on its stream, and may try again. A worker that resumes
// its session or holds a live lease is not refused.
func TestQuotaOfSessions(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Sessions: 2}, func(t *testing.T, r *wiretest.Rig) {
		r.SubmitAll(t, 1)
		holder := r.OpenSession(t, "holder", 1)
		held := holder.ReceiveAssignments(1)
		idle := r.OpenStream(t, "idle")
		accepted := idle.Handshake()
		idle.Send(wiretest.Registration(1))
		more := r.OpenStream(t, "more")
		more.WantError(more.Send(wiretest.HandshakeOf("more")), "E.QUOTA.SESSIONS", "sessions")
		wiretest.WantQuotaError(t, more.WaitForEnd(), quota.Sessions, "tenant", "2")

		holder.Cut()
		synctest.Wait()
		r.OpenSession(t, "more", 1)
		back := r.OpenSession(t, "holder", 1) // not refused, because it holds a live lease
		if ack := back.Heartbeat(held...); ack[0].GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Errorf("the heartbeat of the worker that came back: %v, want COMMITTED", ack)
		}
		again := r.OpenStream(t, "idle") // replaces its first stream
		h := wiretest.HandshakeOf("idle")
		h.Resume = &lessorv1.Resume{SessionId: accepted.GetSessionId(), SessionToken: accepted.GetSessionToken()}
		again.Send(h)
		if !wiretest.NextPayload[*lessorv1.Accept](again).GetResumed() {
			t.Error("the session was not resumed")
		}
	})
}

// X5: at most twice as many streams as sessions may be open before their handshake. A stream that
// ends makes room for another.
func TestStreamsBeforeTheirHandshake(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Sessions: 2}, func(t *testing.T, r *wiretest.Rig) {
		var silent []*wiretest.Worker
		for range 4 {
			silent = append(silent, r.OpenStream(t, "silent"))
			synctest.Wait()
		}
		wiretest.WantQuotaError(t, r.OpenStream(t, "late").WaitForEnd(), quota.Sessions, "tenant", "2")
		for _, worker := range silent {
			worker.Cut()
		}
		synctest.Wait()
		r.OpenStream(t, "late").Handshake()
	})
}

// X5, T9: a retry over the quota of tasks is refused, for a single task and for a filter. Other
// errors of RetryTask stay the same. The tasks that a bulk retry has changed before it reaches the
// quota stay changed.
func TestQuotaOfTasksThatAreRetried(t *testing.T) {
	t.Attr("rules", "X5 T9")
	wiretest.ServeWith(t, nil, coordinator.Config{Quotas: quota.Config{Tenant: quota.Limits{Tasks: 3}}}, func(t *testing.T, r *wiretest.Rig) {
		var ids []string
		for range 5 {
			id := r.Submit(t, nil).GetTaskId()
			if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		retry := func(id string) error {
			return wiretest.ErrOf(r.Tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}))
		}
		if err := retry(ids[4]); err != nil {
			t.Fatal(err)
		}
		all := func(token string) (*lessorv1.BatchResult, error) {
			res, err := r.Tasks.BatchRetryTasks(t.Context(),
				&lessorv1.BatchRetryTasksRequest{Filter: &lessorv1.TaskFilter{Queue: "q"}, PageToken: token})
			return res.GetResult(), err
		}
		first, err := all("")
		if err != nil || first.GetChanged() != 2 || first.GetSkipped() != 0 || first.GetNextPageToken() == "" {
			t.Fatalf("a bulk retry of more than there is room for: %v (%v), want 2 changed and a page token", first, err)
		}
		for range 2 {
			for _, token := range []string{"", first.GetNextPageToken()} {
				wiretest.WantTasksQuota(t, wiretest.ErrOf(all(token)), 3, 3, 1)
			}
		}
		wiretest.WantTasksQuota(t, retry(ids[2]), 3, 3, 1)
		for i, want := range []lessorv1.TaskState{
			lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_CANCELLED,
			lessorv1.TaskState_TASK_STATE_CANCELLED, lessorv1.TaskState_TASK_STATE_READY,
		} {
			if got := r.Get(t, ids[i]).GetState(); got != want {
				t.Errorf("task %d is %v, want %v", i, got, want)
			}
		}
		if err := retry(ids[0]); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("retry of a READY task: %v, want FAILED_PRECONDITION", err)
		}
		if err := retry("t0000200000009999"); status.Code(err) != codes.NotFound {
			t.Errorf("retry of an unknown task: %v, want NOT_FOUND", err)
		}
		r.Complete(t, r.Lease(t), "")
		if err := retry(ids[2]); err != nil {
			t.Errorf("retry after another task has ended: %v", err)
		}
		r.Complete(t, r.Lease(t), "")
		if next, err := all(first.GetNextPageToken()); err != nil || next.GetChanged() != 1 || next.GetSkipped() != 2 || next.GetNextPageToken() != "" {
			t.Errorf("the rest of the bulk retry, once there is room: %v (%v), want the fourth task changed, and the third and fifth skipped", next, err)
		}
	})
}

// X5: the quota of tasks limits how many tasks of a tenant have not ended. It holds for every way
// to submit, and after a restart. A repeated submit of an existing task is not refused. A task that
// ends or is deleted makes room for another.
func TestQuotaOfTasks(t *testing.T) {
	t.Attr("rules", "X5")
	cfg := coordinator.Config{Quotas: quota.Config{Tenant: quota.Limits{Tasks: 3}}}
	st := memstore.New()
	wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) {
		spec := func(key string) *lessorv1.TaskSpec { return &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: key} }
		batch := func(r *wiretest.Rig, keys ...string) error {
			req := &lessorv1.BatchSubmitTasksRequest{}
			for _, key := range keys {
				req.Tasks = append(req.Tasks, spec(key))
			}
			_, err := r.Tasks.BatchSubmitTasks(t.Context(), req)
			return err
		}
		wantFull := func(r *wiretest.Rig) {
			t.Helper()
			wiretest.WantTasksQuota(t, batch(r, "", "a"), 3, 3, 1)
			wiretest.WantTasksQuota(t, batch(r, "new", "new", "new", "new"), 3, 3, 1)
			stream, err := r.Tasks.SubmitStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// Recv returns the error
			_ = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{spec("a"), spec("")}})
			res, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if res.GetResults()[0].GetError() != nil || res.GetResults()[1].GetError().GetCode() != "E.QUOTA.TASKS" {
				t.Errorf("%v, want the existing task and a refusal by the quota", res)
			}
		}
		if err := batch(r, "a", "b", "c", "d"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "tasks: makes 4 tasks;") {
			t.Errorf("a batch that never has room: %v, want INVALID_ARGUMENT that names its size", err)
		}
		if err := batch(r, "a", "b", "a", "c", "b"); err != nil {
			t.Fatal(err)
		}
		wantFull(r)
		r.Complete(t, r.Lease(t), "")
		id := r.Submit(t, nil).GetTaskId()
		wantFull(r)
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		r.Submit(t, nil)
		r.Lease(t)
		wantFull(r)

		r.Close(t)
		next := wiretest.NewWith(t, st, cfg)
		defer next.Close(t)
		wantFull(next)
		if _, err := next.Tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		if err := batch(next, "e", "f"); err != nil { // the third place has the leased task
			t.Error(err)
		}
		wantFull(next)
	})
}

// X5: submits that are refused because there is no room for their tasks are not charged to the rate
// of submits.
func TestSubmitsWithoutRoomAreNotCharged(t *testing.T) {
	t.Attr("rules", "X5")
	var full atomic.Bool
	cfg := coordinator.Config{
		DiskFull: full.Load,
		Quotas:   quota.Config{Tenant: quota.Limits{Tasks: 3, Submits: quota.Rate{PerSecond: 1, Burst: 5}}},
	}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		batch := func(n int) error {
			_, err := r.Tasks.BatchSubmitTasks(t.Context(),
				&lessorv1.BatchSubmitTasksRequest{Tasks: slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q"}}, n)})
			return err
		}
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantRefused := func(code string) {
			t.Helper()
			// Recv returns the error
			_ = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}, {Queue: "q"}}})
			res, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range res.GetResults() {
				wiretest.WantEqual(t, "the code of a submit without room", one.GetError().GetCode(), code)
			}
		}
		if err := batch(200); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a batch that never has room: %v, want INVALID_ARGUMENT", err)
		}
		if err := batch(3); err != nil { // 2 are left of the burst
			t.Fatal(err)
		}
		for range 3 {
			wiretest.WantTasksQuota(t, batch(2), 3, 3, 2)
			wantRefused("E.QUOTA.TASKS")
		}
		full.Store(true)
		for range 3 {
			wiretest.WantDiskFull(t, "BatchSubmitTasks", batch(2))
			wantRefused(refusal.CodeDiskFull)
		}
		full.Store(false)
		for range 2 {
			r.Complete(t, r.Lease(t), "")
		}
		if err := batch(2); err != nil {
			t.Errorf("submits within their rate, once there is room: %v", err)
		}
		wiretest.WantQuotaError(t, batch(1), quota.Submits, "tenant", "1/s:5")
	})
}

// X5: a tenant may have a quota of tasks of its own. The refusal names this quota, not that of the
// other tenants, and how much of it is used and asked for.
func TestQuotaOfTasksOfOneTenant(t *testing.T) {
	t.Attr("rules", "X5")
	cfg := coordinator.Config{Quotas: quota.Config{
		Tenant:  quota.Limits{Tasks: 3},
		Tenants: map[string]quota.Limits{gate.DefaultTenant: {Tasks: 5}},
	}}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		for range 5 {
			r.Submit(t, nil)
		}
		_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
		wiretest.WantTasksQuota(t, err, 5, 5, 1)
	})
}

// X5, T1: a tenant with more tasks than a lowered quota allows can still repeat the submits of
// existing tasks.
func TestLoweredQuotaOfTasks(t *testing.T) {
	t.Attr("rules", "X5 T1")
	st := memstore.New()
	wiretest.ServeWith(t, st, coordinator.Config{}, func(t *testing.T, r *wiretest.Rig) {
		spec := func(key string) *lessorv1.TaskSpec { return &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: key} }
		batch := func(r *wiretest.Rig, keys ...string) (made int, err error) {
			req := &lessorv1.BatchSubmitTasksRequest{}
			for _, key := range keys {
				req.Tasks = append(req.Tasks, spec(key))
			}
			res, err := r.Tasks.BatchSubmitTasks(t.Context(), req)
			for _, one := range res.GetResults() {
				if one.GetCreated() {
					made++
				}
			}
			return made, err
		}
		if made, err := batch(r, "a", "b", "c"); made != 3 || err != nil {
			t.Fatal(made, err)
		}
		r.Close(t)
		r = wiretest.NewWith(t, st, coordinator.Config{Quotas: quota.Config{Tenant: quota.Limits{Tasks: 1}}})
		defer r.Close(t)
		if made, err := batch(r, "c", "a"); made != 0 || err != nil {
			t.Errorf("%d tasks were made (%v), want 0: the two tasks exist", made, err)
		}
		_, err := batch(r, "d")
		wiretest.WantTasksQuota(t, err, 1, 3, 1)
	})
}
