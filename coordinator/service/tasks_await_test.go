package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// awaits is an AwaitTasks of a client that reads all answers.
type awaits struct {
	t       *testing.T
	stream  lessorv1.TaskService_AwaitTasksClient
	end     context.CancelFunc
	answers []*lessorv1.AwaitTasksResponse
	tasks   map[string]*lessorv1.AwaitedTask // the last answer about each id
	ended   bool
	err     error // why it ended; nil: in order
}

func await(t *testing.T, r *wiretest.Rig, ids ...string) *awaits {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	stream, err := r.Tasks.AwaitTasks(ctx)
	if err != nil {
		t.Fatal(err)
	}
	a := &awaits{t: t, stream: stream, end: end, tasks: map[string]*lessorv1.AwaitedTask{}}
	go func() {
		for {
			res, err := stream.Recv()
			if err != nil {
				if a.ended = true; !errors.Is(err, io.EOF) {
					a.err = err
				}
				return
			}
			a.answers = append(a.answers, res)
			for _, task := range res.GetTasks() {
				a.tasks[task.GetTaskId()] = task
			}
		}
	}()
	a.send(&lessorv1.AwaitTasksRequest{Add: ids})
	return a
}

// send sends a request, and waits until all is answered that can be.
func (a *awaits) send(req *lessorv1.AwaitTasksRequest) {
	_ = a.stream.Send(req) // an error shows in Recv
	synctest.Wait()
}

// want checks the answers since the last want: words like "t1:COMPLETED t2:E.TASK.NOT_FOUND",
// without the numbers of ids.
func (a *awaits) want(what string, want map[string]string) {
	a.t.Helper()
	synctest.Wait()
	got := map[string]string{}
	for id, task := range a.tasks {
		got[id] = strings.TrimPrefix(task.GetState().String(), "TASK_STATE_")
		if e := task.GetError(); e != nil {
			got[id] = e.GetCode()
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		a.t.Errorf("%s: the answers are %v (%v), want %v", what, got, a.err, want)
	}
	clear(a.tasks)
}

func retryTask(t *testing.T, r *wiretest.Rig, id string) {
	t.Helper()
	if _, err := r.Tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
		t.Fatal(err)
	}
}

// A task is told when it has ended, at once if it had before, as GetTask shows it; an id of no
// task, or of one that is deleted meanwhile, has an error as from GetTask. When the client has
// closed its side, the stream ends with the last answer.
func TestAwaitTasks(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		done := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = []byte("in") }).GetTaskId()
		r.Complete(t, r.Lease(t), "out")
		later := r.Submit(t, nil).GetTaskId()
		gone := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "other" }).GetTaskId()
		a := await(t, r, done, later, gone, "t0000000000000001", "nothing", "", "bad\nid", later)
		for _, id := range []string{done, "t0000000000000001", "nothing", "", "bad\nid"} {
			_, err := r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id})
			if got := a.tasks[id].GetError(); codes.Code(got.GetStatus()) != status.Code(err) || got.GetCode() != refusal.CodeOf(err) {
				t.Errorf("the error of %q is %v, want as %v", id, got, err)
			}
		}
		if want := r.Get(t, done); !proto.Equal(a.tasks[done].GetTask(), want) || string(want.GetOutput()) != "out" || string(want.GetSpec().GetPayload()) != "in" {
			t.Errorf("told %v, want %v", a.tasks[done].GetTask(), want)
		}
		a.want("at once", map[string]string{
			done: "COMPLETED", "t0000000000000001": refusal.CodeNotFound, "nothing": refusal.CodeNotFound,
			"": refusal.CodeInvalid, "bad\nid": refusal.CodeInvalid,
		})
		r.Complete(t, r.Lease(t), "")
		a.want("after its end", map[string]string{later: "COMPLETED"})
		if err := a.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); a.ended {
			t.Errorf("the stream ended with %v before the last answer", a.err)
		}
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: gone}); err != nil {
			t.Fatal(err)
		}
		a.want("of a deleted task", map[string]string{gone: refusal.CodeNotFound})
		if !a.ended || a.err != nil {
			t.Errorf("the stream has ended: %t, with %v; want in order", a.ended, a.err)
		}
	})
}

// The ends of one commit come in one answer. What is forgotten is told no more. An answer says how
// many requests were taken before it, so that a client knows an older end, and a task that is added
// again is told again.
func TestAwaitTasksInFrames(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var ids []string
		for range 5 {
			ids = append(ids, r.Submit(t, nil).GetTaskId())
		}
		a := await(t, r, ids...)
		a.send(&lessorv1.AwaitTasksRequest{Forget: []string{ids[4], "nothing", "t0000000000000001"}})
		if _, err := r.Tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{All: true}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, id := range ids[:4] {
			want[id] = "CANCELLED"
		}
		a.want("of four", want)
		if n := len(a.answers); n != 1 || a.answers[0].GetRequests() != 2 {
			t.Errorf("%d answers, the first after %d requests; want one after 2", n, a.answers[0].GetRequests())
		}
		a.send(&lessorv1.AwaitTasksRequest{Add: ids[:1], Forget: ids[:1]})
		a.want("again", map[string]string{ids[0]: "CANCELLED"})
		if last := a.answers[len(a.answers)-1]; last.GetRequests() != 3 {
			t.Errorf("the last answer is after %d requests, want 3", last.GetRequests())
		}
		a.end()
	})
}

// hookedStore is a store in memory that calls after at the end of a View.
type hookedStore struct {
	*memstore.Store
	after func()
}

func (s *hookedStore) View(fn func(store.Reader) error) error {
	err := s.Store.View(fn)
	if after := s.after; after != nil {
		s.after = nil
		after()
	}
	return err
}

// A task that ended and was retried before the coordinator looked is waited for further, also if it
// ends again right after the look.
func TestAwaitTasksOfARetriedTask(t *testing.T) {
	st := &hookedStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		ctx := wiretest.ContextAfterGate(t.Context(), t)
		var sent []*lessorv1.AwaitTasksResponse
		a := r.Services.NewAwaiter(ctx, func(m any) error {
			sent = append(sent, m.(*lessorv1.AwaitTasksResponse))
			return nil
		})
		defer a.Close()
		look := func() (waits, counted int) {
			if err := a.Look(); err != nil {
				t.Fatal(err)
			}
			return a.Waits()
		}
		if err := a.Take(&lessorv1.AwaitTasksRequest{Add: []string{id}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r.CancelTask(t, id)
			retryTask(t, r, id)
			if _, counted := look(); len(sent) != 0 || counted != 1 {
				t.Fatalf("told %v, and waits for %d; want nothing, and one", sent, counted)
			}
		}
		r.CancelTask(t, id)
		if waits, counted := look(); len(sent) != 1 || counted != 0 || waits != 0 {
			t.Errorf("told %v, and waits for %d; want the end, and none", sent, counted)
		}
		retryTask(t, r, id)
		if err := a.Take(&lessorv1.AwaitTasksRequest{Add: []string{id}}); err != nil {
			t.Fatal(err)
		}
		r.CancelTask(t, id)
		retryTask(t, r, id)
		st.after = func() { r.CancelTask(t, id) }
		if look(); len(sent) != 2 {
			t.Errorf("the end right after the look is not told: %v", sent)
		}
	})
}

// S7: what a request may have is bounded, and the refusal names the field and the limit. It ends
// the stream after the answers to the request before.
func TestAwaitTasksRefuses(t *testing.T) {
	t.Attr("rules", "S7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		unknown := &lessorv1.AwaitTasksRequest{}
		unknown.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 1})
		for _, tt := range []struct {
			req          *lessorv1.AwaitTasksRequest
			field, limit string
		}{
			{&lessorv1.AwaitTasksRequest{Add: make([]string, 1001)}, "add", "1000"},
			{&lessorv1.AwaitTasksRequest{Forget: make([]string, 1001)}, "forget", "1000"},
			{&lessorv1.AwaitTasksRequest{Add: []string{"", wiretest.Text(257)}}, "add[1]", "256"},
			{&lessorv1.AwaitTasksRequest{Forget: []string{wiretest.Text(257)}}, "forget[0]", "256"},
			{unknown, "request", "99"},
		} {
			a := await(t, r, "nothing")
			a.send(tt.req)
			a.want(tt.field, map[string]string{"nothing": refusal.CodeNotFound})
			st := status.Convert(a.err)
			if path, problem := detail.Field(st); st.Code() != codes.InvalidArgument || path != tt.field || !strings.Contains(problem, tt.limit) {
				t.Errorf("the stream ended with %v of %q, want INVALID_ARGUMENT of %s with %s", a.err, path, tt.field, tt.limit)
			}
		}
	})
}

// Programs share the stream between their callers and know only the default limit of ids: an id
// above a lower one ends the wait for that id, not those of the others.
func TestAwaitTasksBelowTheDefaultLimitOfIDs(t *testing.T) {
	cfg := coordinator.Config{}
	cfg.Limits = lease.DefaultLimits()
	cfg.Limits.ID = 32
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		id, long := r.Submit(t, nil).GetTaskId(), wiretest.Text(33)
		a := await(t, r, id, long)
		r.Complete(t, r.Lease(t), "")
		a.want("after the end of the other task", map[string]string{id: "COMPLETED", long: refusal.CodeInvalid})
	})
}

// X5: a stream, a tenant and a rate bound how many tasks may be waited for. What has no room gets
// an error with a wait, unless it has ended; what is told, forgotten or of a stream that has ended
// makes room.
func TestQuotaOfWaits(t *testing.T) {
	t.Attr("rules", "X5")
	defer func(n int) { *service.MostAwaited = n }(*service.MostAwaited)
	for _, tt := range []struct {
		of     string
		stream int
		limits quota.Limits
	}{{"stream", 2, quota.Limits{Waits: 10}}, {"tenant", 10, quota.Limits{Waits: 2}}} {
		*service.MostAwaited = tt.stream
		wiretest.WithQuotas(t, tt.limits, func(t *testing.T, r *wiretest.Rig) {
			ended := r.Cancelled(t, 1, 0)[0]
			var ids []string
			for range 5 {
				ids = append(ids, r.Submit(t, nil).GetTaskId())
			}
			full := func(of ...string) map[string]string {
				all := map[string]string{}
				for _, id := range of {
					all[id] = refusal.CodeQuotaWaits
				}
				return all
			}
			a := await(t, r, ids[0], ids[1], ids[2], ended, ids[3])
			if e := a.tasks[ids[2]].GetError(); e.GetRetryAfter().AsDuration() != time.Second || !strings.Contains(e.GetMessage(), tt.of) {
				t.Errorf("the refusal is %v, want that of the %s, with a wait of 1s", e, tt.of)
			}
			want := full(ids[2], ids[3])
			want[ended] = "CANCELLED"
			a.want("more than the limit", want)
			a.send(&lessorv1.AwaitTasksRequest{Add: []string{ids[0], ids[1]}})
			a.want("of those that are waited for", map[string]string{})
			a.send(&lessorv1.AwaitTasksRequest{Add: []string{ids[2], ids[3]}, Forget: []string{ids[0]}})
			if n := len(a.tasks); n != 1 {
				t.Errorf("%d of two are refused when there is room for one", n)
			}
			clear(a.tasks)
			r.CancelTask(t, ids[1])
			a.want("its end", map[string]string{ids[1]: "CANCELLED"})
			a.send(&lessorv1.AwaitTasksRequest{Add: []string{ids[4]}})
			a.want("in its place", map[string]string{})
			if used := r.Quotas.Usage(quota.Caller{Tenant: "default"}); !wiretest.HasUse(used, quota.Waits, 2) {
				t.Errorf("the quota says %v, want two waits", used)
			}
			a.end()
			synctest.Wait()
			b := await(t, r, ids[2], ids[3])
			b.want("after the end of the other stream", map[string]string{})
			b.end()
			if synctest.Wait(); !wiretest.HasUse(r.Quotas.Usage(quota.Caller{Tenant: "default"}), quota.Waits, 0) {
				t.Error("a stream that has ended uses the quota of waits")
			}
		})
	}
	*service.MostAwaited = 1000
	wiretest.WithQuotas(t, quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 10}}, func(t *testing.T, r *wiretest.Rig) {
		a := await(t, r, "t0000000000000001", "t0000000000000002", "t0000000000000003", "t0000000000000004", "t0000000000000005")
		a.want("within the rate", map[string]string{
			"t0000000000000001": refusal.CodeNotFound, "t0000000000000002": refusal.CodeNotFound, "t0000000000000003": refusal.CodeNotFound,
			"t0000000000000004": refusal.CodeNotFound, "t0000000000000005": refusal.CodeNotFound,
		})
		a.send(&lessorv1.AwaitTasksRequest{Add: []string{"t0000000000000001", "t0000000000000002", "t0000000000000003", "t0000000000000004", "t0000000000000005"}})
		e := a.tasks["t0000000000000003"].GetError()
		if e.GetCode() != refusal.CodeQuotaCalls || e.GetRetryAfter().AsDuration() != time.Second {
			t.Errorf("the eleventh call gets %v, want %s with a wait of 1s", e, refusal.CodeQuotaCalls)
		}
		a.end()
	})
}

// S7: a large task is not sent, only its state, and many do not make a large answer.
func TestAwaitTasksOfLargeTasks(t *testing.T) {
	t.Attr("rules", "S7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		const payload = 256 << 10
		ids := r.Cancelled(t, 20, payload)
		large := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 700<<10) }).GetTaskId()
		r.Complete(t, r.Lease(t), wiretest.Text(700<<10))
		a := await(t, r, append(ids, large)...)
		for i, res := range a.answers {
			if n := proto.Size(res); n > *service.MaxPageBytes+*service.MaxAwaitedBytes+(4<<10) {
				t.Errorf("answer %d has %d bytes", i, n)
			}
		}
		if told := a.tasks[large]; told.GetTask() != nil || told.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("of a large task: %v", told.GetState())
		}
		for _, id := range ids {
			if told := a.tasks[id]; len(told.GetTask().GetSpec().GetPayload()) != payload {
				t.Errorf("of a small task: %v", told)
			}
		}
		a.end()
	})
}

// X5: an answer holds a place of its connection until its client has read it. So streams that
// nobody reads hold up the reads of their own connection, and no others, and their memory is
// bounded. The tasks that they do not read about are told to others.
func TestAwaitTasksThatNobodyReads(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ids := r.Cancelled(t, 8, 256<<10)
		deaf := wiretest.Dial(t, r.Listener)
		defer func() { _ = deaf.Close() }()
		service := lessorv1.NewTaskServiceClient(deaf)
		get := func(c lessorv1.TaskServiceClient) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := c.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: ids[0]})
			return err
		}
		var cut []context.CancelFunc
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			cut = append(cut, cancel)
			stream, err := service.AwaitTasks(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&lessorv1.AwaitTasksRequest{Add: ids}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := get(service); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("GetTask beside streams that nobody reads: %v, want DEADLINE_EXCEEDED", err)
		}
		a := await(t, r, ids...)
		if err := get(r.Tasks); err != nil || len(a.tasks) != len(ids) {
			t.Errorf("on another connection: %v, and %d answers", err, len(a.tasks))
		}
		a.end()
		for _, cancel := range cut {
			cancel()
		}
		synctest.Wait()
		if err := get(service); err != nil {
			t.Errorf("GetTask after the ends of the streams: %v", err)
		}
	})
}

// A damaged record is an error about its task alone.
func TestAwaitTasksOfADamagedTask(t *testing.T) {
	st := &damagedStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		ids := r.Cancelled(t, 3, 100)
		st.damage(0)
		a := await(t, r, ids...)
		a.want("one is damaged", map[string]string{ids[0]: refusal.CodeInternal, ids[1]: "CANCELLED", ids[2]: "CANCELLED"})
		wiretest.WantContains(t, "the log", r.Log.String(), "read of the store failed")
		a.end()
	})
}

// A stop ends the stream with UNAVAILABLE.
func TestStopEndsAwaitTasks(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		a := await(t, r, r.Submit(t, nil).GetTaskId())
		r.Stop()
		if synctest.Wait(); !a.ended || status.Code(a.err) != codes.Unavailable || refusal.CodeOf(a.err) != refusal.CodeStopping {
			t.Errorf("the stream has ended: %t, with %v; want %s", a.ended, a.err, refusal.CodeStopping)
		}
	})
}

// When the engine stops by itself, the streams end, too.
func TestAwaitTasksOfAStoppedEngine(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		a := r.Services.NewAwaiter(wiretest.ContextAfterGate(t.Context(), t), nil)
		defer a.Close()
		r.Stop()
		if err := a.Run(); !errors.Is(err, engine.ErrStopped) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}
