package coordinator

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

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
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

func (r *rig) await(t *testing.T, ids ...string) *awaits {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	stream, err := r.tasks.AwaitTasks(ctx)
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

// want checks the answers since the last want: words like "t1:COMPLETED t2:E.TASK.NOT_FOUND", without the numbers of ids.
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

func (r *rig) cancelTask(t *testing.T, id string) {
	t.Helper()
	if _, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) retryTask(t *testing.T, id string) {
	t.Helper()
	if _, err := r.tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
		t.Fatal(err)
	}
}

// cancelled submits tasks with outputs of so many bytes that are cancelled. It returns their ids.
func (r *rig) cancelled(t *testing.T, n, payload int) (ids []string) {
	t.Helper()
	for range n {
		id := r.submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, payload) }).GetTaskId()
		r.cancelTask(t, id)
		ids = append(ids, id)
	}
	return ids
}

// A task is told when it has ended, at once if it had before, as GetTask shows it; an id of no task, or of one that is deleted meanwhile, has an error as
// from GetTask. When the client has closed its side, the stream ends with the last answer.
func TestAwaitTasks(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		done := r.submit(t, func(s *lessorv1.TaskSpec) { s.Payload = []byte("in") }).GetTaskId()
		r.complete(t, r.lease(t), "out")
		later := r.submit(t, nil).GetTaskId()
		gone := r.submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "other" }).GetTaskId()
		a := r.await(t, done, later, gone, "t0000000000000001", "nothing", "", later)
		for _, id := range []string{done, "t0000000000000001", "nothing", ""} {
			_, err := r.tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id})
			if got := a.tasks[id].GetError(); codes.Code(got.GetStatus()) != status.Code(err) || got.GetCode() != refusal.CodeOf(err) {
				t.Errorf("the error of %q is %v, want as %v", id, got, err)
			}
		}
		if want := r.get(t, done); !proto.Equal(a.tasks[done].GetTask(), want) || string(want.GetOutput()) != "out" || string(want.GetSpec().GetPayload()) != "in" {
			t.Errorf("told %v, want %v", a.tasks[done].GetTask(), want)
		}
		a.want("at once", map[string]string{done: "COMPLETED", "t0000000000000001": refusal.CodeNotFound, "nothing": refusal.CodeNotFound, "": refusal.CodeInvalid})
		r.complete(t, r.lease(t), "")
		a.want("after its end", map[string]string{later: "COMPLETED"})
		if err := a.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); a.ended {
			t.Errorf("the stream ended with %v before the last answer", a.err)
		}
		if _, err := r.tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: gone}); err != nil {
			t.Fatal(err)
		}
		a.want("of a deleted task", map[string]string{gone: refusal.CodeNotFound})
		if !a.ended || a.err != nil {
			t.Errorf("the stream has ended: %t, with %v; want in order", a.ended, a.err)
		}
	})
}

// The ends of one commit come in one answer. What is forgotten is told no more. An answer says how many requests were taken before it, so that a client knows
// an older end, and a task that is added again is told again.
func TestAwaitTasksInFrames(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		var ids []string
		for range 5 {
			ids = append(ids, r.submit(t, nil).GetTaskId())
		}
		a := r.await(t, ids...)
		a.send(&lessorv1.AwaitTasksRequest{Forget: []string{ids[4], "nothing", "t0000000000000001"}})
		if _, err := r.tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{All: true}); err != nil {
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

// A task that ended and was retried before the coordinator looked is waited for further, also if it ends again right after the look.
func TestAwaitTasksOfARetriedTask(t *testing.T) {
	st := &hookedStore{Store: memstore.New()}
	serve(t, st, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		ctx := contextAfterGate(t.Context(), t)
		var sent []*lessorv1.AwaitTasksResponse
		a := &awaiter{taskService: &taskService{edge: r.edge}, ctx: ctx, who: gate.Identify(ctx), ends: r.engine.Ends(), send: func(m any) error {
			sent = append(sent, m.(*lessorv1.AwaitTasksResponse))
			return nil
		}}
		defer a.close()
		look := func() {
			<-a.ends.More()
			if err := a.tell(a.ends.Take()); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.take(&lessorv1.AwaitTasksRequest{Add: []string{id}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r.cancelTask(t, id)
			r.retryTask(t, id)
			if look(); len(sent) != 0 || a.counted != 1 {
				t.Fatalf("told %v, and waits for %d; want nothing, and one", sent, a.counted)
			}
		}
		r.cancelTask(t, id)
		if look(); len(sent) != 1 || a.counted != 0 || a.ends.Len() != 0 {
			t.Errorf("told %v, and waits for %d; want the end, and none", sent, a.counted)
		}
		r.retryTask(t, id)
		if err := a.take(&lessorv1.AwaitTasksRequest{Add: []string{id}}); err != nil {
			t.Fatal(err)
		}
		r.cancelTask(t, id)
		r.retryTask(t, id)
		st.after = func() { r.cancelTask(t, id) }
		if look(); len(sent) != 2 {
			t.Errorf("the end right after the look is not told: %v", sent)
		}
	})
}

// S7: what a request may have is bounded, and the refusal names the field and the limit. It ends the stream after the answers to the request before.
func TestAwaitTasksRefuses(t *testing.T) {
	t.Attr("rules", "S7")
	serve(t, nil, func(t *testing.T, r *rig) {
		unknown := &lessorv1.AwaitTasksRequest{}
		unknown.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 1})
		for _, tt := range []struct {
			req          *lessorv1.AwaitTasksRequest
			field, limit string
		}{
			{&lessorv1.AwaitTasksRequest{Add: make([]string, 1001)}, "add", "1000"},
			{&lessorv1.AwaitTasksRequest{Forget: make([]string, 1001)}, "forget", "1000"},
			{&lessorv1.AwaitTasksRequest{Add: []string{"", text(257)}}, "add[1]", "256"},
			{&lessorv1.AwaitTasksRequest{Forget: []string{text(257)}}, "forget[0]", "256"},
			{unknown, "request", "99"},
		} {
			a := r.await(t, "nothing")
			a.send(tt.req)
			a.want(tt.field, map[string]string{"nothing": refusal.CodeNotFound})
			st := status.Convert(a.err)
			if path, problem := detail.Field(st); st.Code() != codes.InvalidArgument || path != tt.field || !strings.Contains(problem, tt.limit) {
				t.Errorf("the stream ended with %v of %q, want INVALID_ARGUMENT of %s with %s", a.err, path, tt.field, tt.limit)
			}
		}
	})
}

// X5: a stream, a tenant and a rate bound how many tasks may be waited for. What has no room gets an error with a wait, unless it has ended; what is told,
// forgotten or of a stream that has ended makes room.
func TestQuotaOfWaits(t *testing.T) {
	t.Attr("rules", "X5")
	defer func(n int) { mostAwaited = n }(mostAwaited)
	for _, tt := range []struct {
		of     string
		stream int
		limits quota.Limits
	}{{"stream", 2, quota.Limits{Waits: 10}}, {"tenant", 10, quota.Limits{Waits: 2}}} {
		mostAwaited = tt.stream
		withQuotas(t, tt.limits, func(t *testing.T, r *rig) {
			ended := r.cancelled(t, 1, 0)[0]
			var ids []string
			for range 5 {
				ids = append(ids, r.submit(t, nil).GetTaskId())
			}
			full := func(of ...string) map[string]string {
				all := map[string]string{}
				for _, id := range of {
					all[id] = refusal.CodeQuotaWaits
				}
				return all
			}
			a := r.await(t, ids[0], ids[1], ids[2], ended, ids[3])
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
			r.cancelTask(t, ids[1])
			a.want("its end", map[string]string{ids[1]: "CANCELLED"})
			a.send(&lessorv1.AwaitTasksRequest{Add: []string{ids[4]}})
			a.want("in its place", map[string]string{})
			if used := r.edge.quotas.Usage(quota.Caller{Tenant: "default"}); !hasUse(used, quota.Waits, 2) {
				t.Errorf("the quota says %v, want two waits", used)
			}
			a.end()
			synctest.Wait()
			b := r.await(t, ids[2], ids[3])
			b.want("after the end of the other stream", map[string]string{})
			b.end()
			if synctest.Wait(); !hasUse(r.edge.quotas.Usage(quota.Caller{Tenant: "default"}), quota.Waits, 0) {
				t.Error("a stream that has ended uses the quota of waits")
			}
		})
	}
	mostAwaited = 1000
	withQuotas(t, quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 10}}, func(t *testing.T, r *rig) {
		a := r.await(t, "t0000000000000001", "t0000000000000002", "t0000000000000003", "t0000000000000004", "t0000000000000005")
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

func hasUse(all []quota.Use, l quota.Limit, n int) bool {
	for _, u := range all {
		if u.Limit == l {
			return u.Used == n
		}
	}
	return false
}

// S7: a large task is not sent, only its state, and many do not make a large answer.
func TestAwaitTasksOfLargeTasks(t *testing.T) {
	t.Attr("rules", "S7")
	serve(t, nil, func(t *testing.T, r *rig) {
		const payload = 256 << 10
		ids := r.cancelled(t, 20, payload)
		large := r.submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 700<<10) }).GetTaskId()
		r.complete(t, r.lease(t), text(700<<10))
		a := r.await(t, append(ids, large)...)
		for i, res := range a.answers {
			if n := proto.Size(res); n > maxPageBytes+maxAwaitedBytes+(4<<10) {
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

// X5: an answer holds a place of its connection until its client has read it. So streams that nobody reads hold up the reads of their own connection, and no
// others, and their memory is bounded. The tasks that they do not read about are told to others.
func TestAwaitTasksThatNobodyReads(t *testing.T) {
	t.Attr("rules", "X5")
	serve(t, nil, func(t *testing.T, r *rig) {
		ids := r.cancelled(t, 8, 256<<10)
		deaf := dial(t, r.listener)
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
		a := r.await(t, ids...)
		if err := get(r.tasks); err != nil || len(a.tasks) != len(ids) {
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
	serve(t, st, func(t *testing.T, r *rig) {
		ids := r.cancelled(t, 3, 100)
		st.damage(0)
		a := r.await(t, ids...)
		a.want("one is damaged", map[string]string{ids[0]: refusal.CodeInternal, ids[1]: "CANCELLED", ids[2]: "CANCELLED"})
		wantContains(t, "the log", r.log.String(), "read of the store failed")
		a.end()
	})
}

// A stop ends the stream with UNAVAILABLE.
func TestStopEndsAwaitTasks(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		a := r.await(t, r.submit(t, nil).GetTaskId())
		r.stop()
		if synctest.Wait(); !a.ended || status.Code(a.err) != codes.Unavailable || refusal.CodeOf(a.err) != refusal.CodeStopping {
			t.Errorf("the stream has ended: %t, with %v; want %s", a.ended, a.err, refusal.CodeStopping)
		}
	})
}

// When the engine stops by itself, the streams end, too.
func TestAwaitTasksOfAStoppedEngine(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		ends := r.engine.Ends()
		a := &awaiter{taskService: &taskService{edge: r.edge}, ctx: t.Context(), ends: ends}
		defer a.close()
		r.stop()
		if err := a.run(nil, nil); !errors.Is(err, engine.ErrStopped) {
			t.Errorf("the stream ended with %v", err)
		}
	})
}
