package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/auth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// noCredential limits calls that have shown no credential that could end.
var noCredential = unreadLimit{func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }}

// X5: a connection may have only a limited number of large answers that are not sent yet. Further calls wait until one of them is sent. A call that has
// ended does not wait. Answers that were sent, small answers, failed calls and panics do not count.
func TestUnreadAnswersAreBounded(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		conn := unreadHandler{}.TagConn(t.Context(), nil)
		get := &grpc.UnaryServerInfo{FullMethod: lessorv1.TaskService_GetTask_FullMethodName}
		made := make(chan mem.BufferSlice, 100)
		answer := func(ctx context.Context, payload int) error {
			m, err := noCredential.unary(ctx, nil, get, func(context.Context, any) (any, error) {
				return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Output: make([]byte, payload)}}, nil
			})
			if err != nil {
				return err
			}
			b, err := encode(m)
			made <- b
			return err
		}
		const more = 3
		for range maxUnread + more { // more calls than may have an unsent answer
			go func() { _ = answer(conn, 100<<10) }()
		}
		synctest.Wait()
		if len(made) != maxUnread {
			t.Fatalf("%d answers wait to be sent, want %d", len(made), maxUnread)
		}
		gone, cancel := context.WithCancel(conn)
		cancel()
		if code := status.Code(answer(gone, 1)); code != codes.Canceled {
			t.Errorf("a call that has ended gets %v, want CANCELLED", code)
		}
		if err := answer(unreadHandler{}.TagConn(t.Context(), nil), 1); err != nil {
			t.Errorf("a call on another connection: %v", err)
		}
		beat := &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Heartbeat_FullMethodName}
		for range 2 * maxUnread { // such calls neither wait nor count, so a worker keeps its leases
			m, err := noCredential.unary(gone, nil, beat, func(context.Context, any) (any, error) { return &lessorv1.HeartbeatResponse{}, nil })
			if _, counts := m.(*largeAnswer); counts || err != nil {
				t.Fatalf("a heartbeat got %T (%v), want a plain answer", m, err)
			}
		}
		<-made
		for range more { // each answer that is sent lets one waiting call continue
			b := <-made
			b.Free()
			synctest.Wait()
		}
		if len(made) != maxUnread {
			t.Fatalf("%d answers wait to be sent, want %d", len(made), maxUnread)
		}
		for range maxUnread {
			b := <-made
			b.Free()
		}
		for range 2 * maxUnread {
			if err := answer(conn, 1); err != nil {
				t.Fatal(err)
			}
			<-made // a small answer does not count
			if _, err := noCredential.unary(conn, nil, get, func(context.Context, any) (any, error) { return nil, errors.New("no") }); err == nil {
				t.Fatal("no error")
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = noCredential.unary(conn, nil, get, func(context.Context, any) (any, error) { panic("no") })
			}()
		}
	})
}

// X5: a lease request does not count while it waits for a task. It gets no task while its connection has too many unsent answers.
func TestLeaseWaitsForUnreadAnswers(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		conn := unreadHandler{}.TagConn(t.Context(), nil)
		lease := &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Lease_FullMethodName}
		work := make(chan struct{})
		begun, answers := 0, make(chan any, 100) // begun counts the handlers that have begun
		ask := func() {
			m, _ := noCredential.unary(conn, nil, lease, func(ctx context.Context, _ any) (any, error) {
				begun++
				<-work
				return &lessorv1.LeaseResponse{}, placeOf(ctx).take(ctx)
			})
			answers <- m
		}
		for range 2 * maxUnread {
			go ask()
			synctest.Wait()
		}
		if begun != 2*maxUnread {
			t.Fatalf("%d requests wait for a task, want all %d", begun, 2*maxUnread)
		}
		close(work)
		synctest.Wait()
		if len(answers) != maxUnread {
			t.Fatalf("%d answers wait to be sent, want %d", len(answers), maxUnread)
		}
		go ask()
		synctest.Wait()
		if begun != 2*maxUnread {
			t.Error("a lease request was handled although the connection has too many unsent answers")
		}
		for range 2*maxUnread + 1 {
			m := <-answers
			m.(*largeAnswer).sent()
			synctest.Wait()
		}
		if begun != 2*maxUnread+1 {
			t.Error("the last request was not handled after all answers were sent")
		}
	})
}

// X5, X3, W5: a lease request ends with CANCELLED if its caller leaves while the answer waits because of too many unsent answers, and with UNAUTHENTICATED
// if its credential ends in that time. Its task is requeued at once.
func TestLeaseOfACallerThatHasLeft(t *testing.T) {
	t.Attr("rules", "X5 X3 W5")
	serve(t, nil, func(t *testing.T, r *rig) {
		workers := &workerService{edge: &edge{engine: r.engine, cfg: r.cfg, stopping: t.Context()}}
		for cause, want := range map[error]codes.Code{nil: codes.Canceled, &auth.Error{Problem: auth.Revoked}: codes.Unauthenticated} {
			id := r.submit(t, nil).GetTaskId()
			conn := unreadHandler{}.TagConn(contextAfterGate(t.Context(), t), nil)
			ctx, cancel := context.WithCancelCause(conn)
			ask := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}
			_, err := noCredential.unary(ctx, ask, &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Lease_FullMethodName}, func(ctx context.Context, _ any) (any, error) {
				for range maxUnread { // answers that nobody reads
					if err := (&place{of: conn.Value(unreadKey{}).(unreadAnswers)}).take(conn); err != nil {
						t.Fatal(err)
					}
				}
				time.AfterFunc(time.Second, func() {
					if state := r.get(t, id).GetState(); state != lessorv1.TaskState_TASK_STATE_LEASED {
						t.Errorf("the task of the call is %v while the answer waits, want LEASED", state)
					}
					cancel(cause)
				})
				return workers.Lease(ctx, ask)
			})
			if code := status.Code(err); code != want {
				t.Errorf("ended with %v, want %v", err, want)
			}
			synctest.Wait()
			if a := r.lease(t); a.GetTask().GetTaskId() != id {
				t.Errorf("leased %s, want the task of the call, %s", a.GetTask().GetTaskId(), id)
			}
		}
	})
}

// W5: a caller that has left takes no place, even if one is free, so that its task is requeued at once. A call that needs no place ends in the same way.
func TestCallerThatHasLeftTakesNoPlace(t *testing.T) {
	t.Attr("rules", "W5")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (*place)(nil).take(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("going on without a place: %v, want that the call is canceled", err)
	}
	for range 100 { // with both ready, select takes either at random
		p := &place{of: make(unreadAnswers, 1)}
		if err := p.take(gone); !errors.Is(err, context.Canceled) || len(p.of) != 0 {
			t.Fatalf("taking a place: %v, and %d are taken; want that the call is canceled, and none taken", err, len(p.of))
		}
	}
}

// encode writes the same bytes as proto.Marshal, for all sizes, with buffers from the pool and without. The buffer is at most four times as large as the
// message. The place of a large answer is released exactly once.
func TestEncode(t *testing.T) {
	for _, size := range []int{0, 10, 1000, 1024, 5000, 33 << 10, 100 << 10, 600 << 10, 3 << 20} {
		m := &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Output: make([]byte, size)}}
		sent := 0
		for _, v := range []any{m, &largeAnswer{m, func() { sent++ }}} {
			b, err := encode(v)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := proto.Marshal(m)
			if got := b.Materialize(); string(got) != string(want) {
				t.Errorf("encode wrote %d bytes that differ from the %d bytes of proto.Marshal", len(got), len(want))
			}
			if room := cap(b[0].ReadOnlyData()); size > 1<<10 && room > 4*size {
				t.Errorf("the buffer for %d bytes has %d, want at most four times as many", size, room)
			}
			b.Free()
		}
		if sent != 1 {
			t.Errorf("%d bytes: the place was released %d times, want once", size, sent)
		}
	}
}
