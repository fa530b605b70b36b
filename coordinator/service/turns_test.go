package service_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// deafStream is a stream that takes each message at once, and always has another one.
type deafStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // of the call
	sent func()
}

func (s deafStream) Context() context.Context { return s.ctx }

func (s deafStream) SendHeader(metadata.MD) error { return nil }

func (s deafStream) SendMsg(any) error {
	s.sent()
	return nil
}

func (deafStream) RecvMsg(any) error { return nil }

// watchRun watches the run through a gate, as every call does.
func watchRun(t testing.TB, s lessorv1.TaskServiceServer, stream deafStream) {
	info := &grpc.StreamServerInfo{FullMethod: lessorv1.TaskService_WatchTask_FullMethodName}
	_ = wiretest.OpenGate(t).Stream(nil, stream, info, func(_ any, in grpc.ServerStream) error {
		return s.WatchTask(&lessorv1.WatchTaskRequest{RunId: "run"},
			&grpc.GenericServerStream[lessorv1.WatchTaskRequest, lessorv1.WatchTaskResponse]{ServerStream: in})
	})
}

// endlessListener is a listener that always has another connection.
type endlessListener struct{ net.Listener }

func (endlessListener) Accept() (net.Conn, error) {
	conn, _ := net.Pipe()
	return conn, nil
}

// listOfFailed reads all tasks, but returns none.
var listOfFailed = &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_FAILED}}}

// X5: a call that reads or answers much, streams that send or receive much, many tasks or calls or
// connections at once, and a long body let others have the processor in between.
func TestLongCallsYield(t *testing.T) {
	t.Attr("rules", "X5")
	const tasks, values, tokens, calls = 1000, 10_000, 1000, 1000
	c, conn := wiretest.StartPlain(t, coordinator.Config{})
	submitToRun(t, lessorv1.NewTaskServiceClient(conn), tasks)
	withTokens, _ := wiretest.StartPlain(t, coordinator.Config{Auth: &gate.Auth{}})
	keyring := withTokens.Gate.Keyring()
	for range tokens {
		who := auth.Request{Tenant: gate.DefaultTenant, Role: auth.Viewer, Subject: "ann"}
		if _, _, err := keyring.Create(t.Context(), who, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	var unlimited preauth.Connections
	unlimited.Fill()
	connLimiter := preauth.NewConnLimiter(unlimited, false, slog.New(slog.DiscardHandler))
	weights := map[string]float64{}
	for i := range values {
		weights[strconv.Itoa(i)] = 1
	}
	message, err := proto.Marshal(&lessorv1.UpdateQueueRequest{FairnessWeights: weights})
	if err != nil {
		t.Fatal(err)
	}
	tasksOf, ctx := c.Services.Tasks, wiretest.ContextAfterGate(t.Context(), t)
	for name, c := range map[string]struct {
		least int
		call  func()
	}{
		"list": {tasks / 32, func() {
			if res, err := tasksOf.ListTasks(ctx, listOfFailed); err != nil || len(res.GetTasks()) > 0 {
				t.Errorf("list: %v (%v), want no task", res, err)
			}
		}},
		"page over HTTP": {3*tasks/32 + tasks/8, func() {
			w := httptest.NewRecorder()
			c.HTTP.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/tasks?pageSize=1000", nil))
			var page struct{ Tasks []any }
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK || len(page.Tasks) != tasks {
				t.Errorf("the page has status %d and %d tasks (%v), want %d", w.Code, len(page.Tasks), err, tasks)
			}
		}},
		"list of tokens": {3 * tokens / 100, func() {
			if res, err := withTokens.Services.Auth.ListTokens(ctx, &lessorv1.ListTokensRequest{PageSize: tokens}); err != nil || len(res.GetTokens()) != tokens {
				t.Errorf("list: %d tokens (%v), want %d", len(res.GetTokens()), err, tokens)
			}
		}},
		"watch": {tasks, func() {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			events := 0
			watchRun(t, tasksOf, deafStream{ctx: ctx, sent: func() {
				if events++; events == tasks {
					cancel()
				}
			}})
		}},
		"stream of frames": {tasks / 16, func() {
			info := &grpc.StreamServerInfo{FullMethod: lessorv1.WorkerService_Session_FullMethodName, IsClientStream: true}
			_ = wiretest.OpenGate(t).Stream(nil, deafStream{ctx: ctx}, info, func(_ any, in grpc.ServerStream) error {
				for range tasks {
					_ = in.RecvMsg(nil)
				}
				return nil
			})
		}},
		"body": {values / 100, func() {
			body := `{"payload": [1` + strings.Repeat(", 1", values-1) + `], "queue": 1}`
			w := httptest.NewRecorder()
			c.HTTP.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader(body)))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"field":"queue"`) {
				t.Errorf("the body is answered with %d %s, want 400 and queue", w.Code, w.Body)
			}
		}},
		"batch": {tasks / convert.SpecsPerTurn, func() {
			specs := make([]*lessorv1.TaskSpec, tasks)
			for i := range specs {
				specs[i] = &lessorv1.TaskSpec{Queue: "q"}
			}
			specs[tasks-1].Queue = ""
			if _, err := tasksOf.BatchSubmitTasks(ctx, &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); status.Code(err) != codes.InvalidArgument {
				t.Errorf("batch: %v, want INVALID_ARGUMENT", err)
			}
		}},
		"frame of submits": {tasks / convert.SpecsPerTurn, func() {
			c.Services.Submissions(ctx, &lessorv1.SubmitStreamRequest{Tasks: make([]*lessorv1.TaskSpec, tasks)})
		}},
		"message": {len(message) / (16 << 10), func() {
			if err := wiretest.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, &lessorv1.UpdateQueueRequest{}); err != nil {
				t.Error(err)
			}
		}},
		"number of calls on a connection": {calls / 4, func() {
			limiter := preauth.NewCallLimiter(c.Gate, 1)
			conn, err := connLimiter.Listener(endlessListener{}).Accept()
			if err != nil {
				t.Fatal(err)
			}
			_, info, err := preauth.Plain(insecure.NewCredentials()).ServerHandshake(conn)
			if err != nil {
				t.Fatal(err)
			}
			ctx := peer.NewContext(ctx, &peer.Peer{Addr: conn.RemoteAddr(), AuthInfo: info})
			for range calls {
				if _, err := limiter.Tap(ctx, &tap.Info{}); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"number of connections": {calls, func() {
			lis := connLimiter.Listener(endlessListener{})
			for range calls {
				conn, err := lis.Accept()
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			}
		}},
	} {
		if got := turnsOfOthers(c.call); got < c.least/2 {
			t.Errorf("during a long %s others had %d turns, want about %d", name, got, c.least)
		}
	}
}

// turnsOfOthers counts how often another goroutine has the only processor during a call.
func turnsOfOthers(call func()) int {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns atomic.Int64
	var over atomic.Bool
	go func() {
		for !over.Load() {
			turns.Add(1)
			runtime.Gosched()
		}
	}()
	call()
	over.Store(true)
	return int(turns.Load())
}

// submitToRun submits tasks of a run.
func submitToRun(t testing.TB, client lessorv1.TaskServiceClient, n int) {
	t.Helper()
	specs := make([]*lessorv1.TaskSpec, n)
	for i := range specs {
		specs[i] = &lessorv1.TaskSpec{Queue: "q", RunId: "run"}
	}
	if _, err := client.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkBesideLongCalls measures what callers wait while others keep the processors busy. One
// operation is a submit of a hundred tasks of a run.
func BenchmarkBesideLongCalls(b *testing.B) {
	for name, c := range map[string]struct {
		calls int
		call  func(context.Context, lessorv1.TaskServiceServer)
	}{
		"nothing": {},
		"watches": {300, func(ctx context.Context, s lessorv1.TaskServiceServer) {
			watchRun(b, s, deafStream{ctx: ctx, sent: func() {}})
		}},
		"lists": {16, func(ctx context.Context, s lessorv1.TaskServiceServer) {
			for ctx.Err() == nil {
				_, _ = s.ListTasks(ctx, listOfFailed)
			}
		}},
	} {
		b.Run(name, func(b *testing.B) {
			co, conn := wiretest.StartPlain(b, coordinator.Config{})
			client := lessorv1.NewTaskServiceClient(conn)
			submitToRun(b, client, 1000)
			var calls sync.WaitGroup
			ctx, cancel := context.WithCancel(wiretest.ContextAfterGate(b.Context(), b))
			for range c.calls {
				calls.Go(func() { c.call(ctx, co.Services.Tasks) })
			}
			for b.Loop() {
				submitToRun(b, client, 100)
			}
			cancel()
			calls.Wait()
		})
	}
}
