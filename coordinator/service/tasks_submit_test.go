package service_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// S1, T1: the coordinator answers the frames in order, with a result for each spec. A bad spec gets
// an error and does not affect the others. A repeated spec gets the existing task. The headers say
// that it accepted the stream, before any frame.
func TestSubmitStream(t *testing.T) {
	t.Attr("rules", "S1 T1")
	wiretest.ServeWith(t, nil, coordinator.Config{Limits: lease.Limits{Batch: 1}}, func(t *testing.T, r *wiretest.Rig) {
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if headers, err := stream.Header(); err != nil || len(headers) == 0 {
			t.Errorf("headers %v, error %v, want headers before the first frame", headers, err)
		}
		good := &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"}
		for id, specs := range map[string][]*lessorv1.TaskSpec{
			"mixed":  {good, {}, {Queue: "q", WorkspaceId: "other"}, good, {Queue: "other", IdempotencyKey: "k"}},
			"single": {{Queue: "q"}},
		} {
			if err := stream.Send(&lessorv1.SubmitStreamRequest{RequestId: id, Tasks: specs}); err != nil {
				t.Fatal(err)
			}
			res, err := stream.Recv()
			if err != nil || res.GetRequestId() != id || len(res.GetResults()) != len(specs) {
				t.Fatalf("frame %s: %v (%v), want %d results", id, res, err, len(specs))
			}
			if id == "mixed" {
				wantMixed(t, res.GetResults())
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v, want EOF", err)
		}
	})
}

// wantMixed checks the results of the frame "mixed" of TestSubmitStream.
func wantMixed(t *testing.T, got []*lessorv1.SubmitResult) {
	t.Helper()
	if !got[0].GetCreated() || got[3].GetCreated() || got[3].GetTaskId() != got[0].GetTaskId() || !got[2].GetCreated() {
		t.Errorf("results %v, want 0 and 2 created, and 3 with the task of 0", got)
	}
	if e := got[1].GetError(); codes.Code(e.GetStatus()) != codes.InvalidArgument || e.GetField() != "queue" || e.GetCode() != "E.REQUEST.INVALID" {
		t.Errorf("the spec without a queue: %v, want INVALID_ARGUMENT of queue", e)
	}
	if e := got[4].GetError(); codes.Code(e.GetStatus()) != codes.AlreadyExists || e.GetField() != "idempotency_key" {
		t.Errorf("another spec with the same key: %v, want ALREADY_EXISTS of idempotency_key", e)
	}
}

// S7, S4: a frame that is bad as a whole ends the stream with INVALID_ARGUMENT, after the answers
// to the frames before it.
func TestBadFrameEndsTheSubmitStream(t *testing.T) {
	t.Attr("rules", "S7 S4")
	for name, frame := range map[string]*lessorv1.SubmitStreamRequest{
		"no tasks":   {},
		"many tasks": {Tasks: make([]*lessorv1.TaskSpec, 1001)},
		"request_id": {RequestId: wiretest.Text(257), Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}},
	} {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			stream, err := r.Tasks.SubmitStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range []*lessorv1.SubmitStreamRequest{{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}, frame} {
				if err := stream.Send(f); err != nil {
					t.Fatal(err)
				}
			}
			if first, err := stream.Recv(); err != nil || !first.GetResults()[0].GetCreated() {
				t.Errorf("%s: the good frame before it got %v (%v), want a created task", name, first, err)
			}
			if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument || refusal.CodeOf(err) != "E.REQUEST.INVALID" {
				t.Errorf("%s: the stream ended with %v, want INVALID_ARGUMENT", name, err)
			}
		})
	}
}

// A6: a producer that sends many frames before it reads the answers has to wait, and other callers
// do not. All tasks that were answered are stored.
func TestSubmitStreamWindow(t *testing.T) {
	t.Attr("rules", "A6")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.Tasks.SubmitStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		frames := 10 * *service.SubmitWindow
		sent := make(chan error, 1)
		go func() {
			for i := range frames {
				f := &lessorv1.SubmitStreamRequest{
					RequestId: strconv.Itoa(i),
					Tasks:     []*lessorv1.TaskSpec{{Queue: "q"}, {Queue: "q"}},
				}
				if err := stream.Send(f); err != nil {
					sent <- err
					return
				}
			}
			sent <- stream.CloseSend()
		}()
		r.Submit(t, nil) // another caller does not wait
		for i := range frames {
			res, err := stream.Recv()
			if err != nil || res.GetRequestId() != strconv.Itoa(i) {
				t.Fatalf("answer %d: %v (%v), want the request_id %d", i, res, err, i)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		q, err := r.Admin.GetQueue(t.Context(), &lessorv1.GetQueueRequest{Name: "q"})
		if err != nil || q.GetQueue().GetReady() != uint64(2*frames+1) {
			t.Errorf("the queue is %v (%v), want %d ready tasks", q, err, 2*frames+1)
		}
	})
}

// orderStore is a store in memory that remembers in which order commits made tasks.
type orderStore struct {
	*memstore.Store
	mu     sync.Mutex
	spaces []uint32 // of the tasks
}

// Begin implements store.Store.
func (s *orderStore) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, s.Commit), nil
}

func (s *orderStore) Commit(ctx context.Context, b *store.Batch) error {
	s.mu.Lock()
	for i := range b.Len() {
		if w := b.At(i); w.Keyspace == store.Spec {
			id, err := store.ParseTaskKey(w.Keyspace, w.Key)
			if err != nil {
				return err
			}
			s.spaces = append(s.spaces, id.Space)
		}
	}
	s.mu.Unlock()
	return s.Store.Commit(ctx, b)
}

// T12: while frames of two tenants wait for the engine, the tenants take turns: a frame does not
// wait for all frames that another tenant has sent before.
func TestSubmitStreamsOfTenantsTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	st := &orderStore{Store: memstore.New()}
	var busy atomic.Pointer[chan struct{}] // the engine waits for it in each submit
	cfg := coordinator.Config{Auth: &gate.Auth{}, DiskFull: func() bool {
		if wait := busy.Load(); wait != nil {
			<-*wait
		}
		return false
	}}
	wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) {
		open := func(tenant string) lessorv1.TaskService_SubmitStreamClient {
			token, _ := r.Issue(t, tenant, auth.Producer)
			stream, err := r.Tasks.SubmitStream(wiretest.WithToken(t.Context(), token))
			if err != nil {
				t.Fatal(err)
			}
			return stream
		}
		send := func(stream lessorv1.TaskService_SubmitStreamClient) {
			if err := stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		receive := func(stream lessorv1.TaskService_SubmitStreamClient) {
			if res, err := stream.Recv(); err != nil || !res.GetResults()[0].GetCreated() {
				t.Fatalf("%v (%v), want a created task", res, err)
			}
		}
		many, one := open("many"), open("one")
		const frames = 5
		wait := make(chan struct{})
		busy.Store(&wait)
		for range frames {
			send(many)
		}
		send(one)
		busy.Store(nil)
		close(wait)
		for range frames {
			receive(many)
		}
		receive(one)
		if last := slices.Index(st.spaces, 2); len(st.spaces) != frames+1 || last > 2 {
			t.Errorf("the tasks were made in the spaces %v, want the one of space 2 among the first three", st.spaces)
		}
	})
}

// hooks is a context that counts the functions which wait for its end.
type hooks struct {
	context.Context
	all, left atomic.Int64
}

// Value hides the context inside, so that every hook is set by AfterFunc.
func (*hooks) Value(any) any { return nil }

// AfterFunc is called by context.AfterFunc.
func (h *hooks) AfterFunc(fn func()) (stop func() bool) {
	h.all.Add(1)
	h.left.Add(1)
	unhook := context.AfterFunc(h.Context, fn)
	return func() bool {
		h.left.Add(-1)
		return unhook()
	}
}

// A call that ends when the coordinator stops leaves nothing behind when it ends before that.
// Otherwise the memory of the coordinator would grow with each such call.
func TestEndedCallsDoNotWaitForTheStop(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		shared := r.Services.Shared()
		stopping := &hooks{Context: shared.Stopping}
		shared.Stopping = stopping
		for name, call := range map[string]func() error{
			"Lease": func() error {
				return wiretest.ErrOf(r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}))
			},
			"SubmitStream": func() error {
				stream, err := r.Tasks.SubmitStream(t.Context())
				if err != nil || stream.CloseSend() != nil {
					return err
				}
				if _, err = stream.Recv(); errors.Is(err, io.EOF) {
					return nil
				}
				return err
			},
			"WatchTask": func() error {
				id := r.Submit(t, nil).GetTaskId()
				if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
					return err
				}
				return wiretest.ErrOf(wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id}))
			},
			"Backup": func() error {
				stream, err := r.Admin.Backup(t.Context(), &lessorv1.BackupRequest{})
				if err == nil {
					_, _, _, err = wiretest.ReceiveBackup(stream)
				}
				return err
			},
		} {
			before := stopping.all.Load()
			if err := call(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if n := stopping.left.Load(); n != 0 || stopping.all.Load() == before {
				t.Errorf("after %s %d functions of %d wait for the stop, want none of at least one",
					name, n, stopping.all.Load()-before)
			}
		}
	})
}

// A panic while a frame is read fails only its own stream, with INTERNAL. The log has the stack.
func TestPanicEndsOnlyItsSubmitStream(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		shared := r.Services.Shared()
		quotas := shared.Quotas
		shared.Quotas = nil
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Internal || refusal.CodeOf(err) != refusal.CodeInternal {
			t.Errorf("the stream ended with %v, want INTERNAL", err)
		}
		if log := r.Log.String(); !strings.Contains(log, "panic in a handler") || !strings.Contains(log, "submitFrame") {
			t.Errorf("the log lacks the panic or its stack: %s", log)
		}
		shared.Quotas = quotas
		r.Submit(t, nil)
	})
}

// A stop ends the stream with UNAVAILABLE.
func TestStopEndsTheSubmitStream(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != "E.COORDINATOR.STOPPING" {
			t.Errorf("after the stop the stream ended with %v, want UNAVAILABLE", err)
		}
	})
}

// A6: a stop ends the stream only after the answers to the frames that it has taken. Otherwise a
// producer would not know of tasks that were made.
func TestStopAnswersTheFramesOfASubmitStream(t *testing.T) {
	t.Attr("rules", "A6")
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		stream, err := r.Tasks.SubmitStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		st.CommitTime.Store(int64(3 * time.Second))
		const frames = 3
		for i := range frames {
			if err := stream.Send(&lessorv1.SubmitStreamRequest{RequestId: strconv.Itoa(i), Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the disk has not answered yet
		r.Stop()
		synctest.Wait()
		_ = stream.Send(&lessorv1.SubmitStreamRequest{RequestId: "late", Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}})
		for i := range frames {
			if res, err := stream.Recv(); err != nil || res.GetRequestId() != strconv.Itoa(i) || !res.GetResults()[0].GetCreated() {
				t.Fatalf("answer %d: %v (%v), want a created task", i, res, err)
			}
		}
		if res, err := stream.Recv(); status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("after the answers came %v (%v), want UNAVAILABLE", res, err)
		}
		if err := <-r.Served; err != nil {
			t.Errorf("Serve = %v, want nil after a stop", err)
		}
		err = st.View(func(rd store.Reader) error {
			n := 0
			err := records.Tasks(rd, 1, "", 0, func(*lease.Task) bool { n++; return true })
			if n != frames {
				t.Errorf("the store has %d tasks, want %d", n, frames)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
