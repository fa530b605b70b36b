package sendlimit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// noCredential limits calls that have shown no credential that could end.
var noCredential = Limiter{func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }}

// X5: a connection may have only a limited number of large answers that are not sent yet. Further
// calls wait until one of them is sent. A call that has ended does not wait. Answers that were
// sent, small answers, failed calls and panics do not count.
func TestAnswersAreBounded(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		conn := Handler{}.TagConn(t.Context(), nil)
		get := &grpc.UnaryServerInfo{FullMethod: lessorv1.TaskService_GetTask_FullMethodName}
		made := make(chan mem.BufferSlice, 100)
		answer := func(ctx context.Context, payload int) error {
			m, err := noCredential.Unary(ctx, nil, get, func(context.Context, any) (any, error) {
				return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Output: make([]byte, payload)}}, nil
			})
			if err != nil {
				return err
			}
			b, err := Encode(m)
			made <- b
			return err
		}
		const more = 3
		for range maxAnswers + more { // more calls than may have an unsent answer
			go func() { _ = answer(conn, 100<<10) }()
		}
		synctest.Wait()
		if len(made) != maxAnswers {
			t.Fatalf("%d answers wait to be sent, want %d", len(made), maxAnswers)
		}
		gone, cancel := context.WithCancel(conn)
		cancel()
		if code := status.Code(answer(gone, 1)); code != codes.Canceled {
			t.Errorf("a call that has ended gets %v, want CANCELLED", code)
		}
		if err := answer(Handler{}.TagConn(t.Context(), nil), 1); err != nil {
			t.Errorf("a call on another connection: %v", err)
		}
		beat := &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Heartbeat_FullMethodName}
		for range 2 * maxAnswers { // such calls neither wait nor count, so a worker keeps its leases
			m, err := noCredential.Unary(gone, nil, beat,
				func(context.Context, any) (any, error) { return &lessorv1.HeartbeatResponse{}, nil })
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
		if len(made) != maxAnswers {
			t.Fatalf("%d answers wait to be sent, want %d", len(made), maxAnswers)
		}
		for range maxAnswers {
			b := <-made
			b.Free()
		}
		for range 2 * maxAnswers {
			if err := answer(conn, 1); err != nil {
				t.Fatal(err)
			}
			<-made // a small answer does not count
			if _, err := noCredential.Unary(conn, nil, get, func(context.Context, any) (any, error) { return nil, errors.New("no") }); err == nil {
				t.Fatal("no error")
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = noCredential.Unary(conn, nil, get, func(context.Context, any) (any, error) { panic("no") })
			}()
		}
	})
}

// X5: a lease request does not count while it waits for a task. It gets no task while its
// connection has too many unsent answers.
func TestLeaseWaitsForAnswers(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		conn := Handler{}.TagConn(t.Context(), nil)
		lease := &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Lease_FullMethodName}
		work := make(chan struct{})
		begun, answers := 0, make(chan any, 100) // begun counts the handlers that have begun
		ask := func() {
			m, _ := noCredential.Unary(conn, nil, lease, func(ctx context.Context, _ any) (any, error) {
				begun++
				<-work
				return &lessorv1.LeaseResponse{}, PlaceOf(ctx).Take(ctx)
			})
			answers <- m
		}
		for range 2 * maxAnswers {
			go ask()
			synctest.Wait()
		}
		if begun != 2*maxAnswers {
			t.Fatalf("%d requests wait for a task, want all %d", begun, 2*maxAnswers)
		}
		close(work)
		synctest.Wait()
		if len(answers) != maxAnswers {
			t.Fatalf("%d answers wait to be sent, want %d", len(answers), maxAnswers)
		}
		go ask()
		synctest.Wait()
		if begun != 2*maxAnswers {
			t.Error("a lease request was handled although the connection has too many unsent answers")
		}
		for range 2*maxAnswers + 1 {
			m := <-answers
			m.(*largeAnswer).sent()
			synctest.Wait()
		}
		if begun != 2*maxAnswers+1 {
			t.Error("the last request was not handled after all answers were sent")
		}
	})
}

// W5: a caller that has left takes no place, even if one is free, so that its task is requeued at
// once. A call that needs no place ends in the same way.
func TestCallerThatHasLeftTakesNoPlace(t *testing.T) {
	t.Attr("rules", "W5")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (*Place)(nil).Take(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("going on without a place: %v, want that the call is canceled", err)
	}
	for range 100 { // with both ready, select takes either at random
		p := &Place{of: make(answers, 1)}
		if err := p.Take(gone); !errors.Is(err, context.Canceled) || len(p.of) != 0 {
			t.Fatalf("taking a place: %v, and %d are taken; want that the call is canceled, and none taken", err, len(p.of))
		}
	}
}

// Encode writes the same bytes as proto.Marshal, for all sizes, with buffers from the pool and
// without. The buffer is at most four times as large as the message. The place of a large answer is
// released exactly once.
func TestEncode(t *testing.T) {
	for _, size := range []int{0, 10, 1000, 1024, 5000, 33 << 10, 100 << 10, 600 << 10, 3 << 20} {
		m := &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Output: make([]byte, size)}}
		sent := 0
		for _, v := range []any{m, &largeAnswer{m, func() { sent++ }}} {
			b, err := Encode(v)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := proto.Marshal(m)
			if got := b.Materialize(); string(got) != string(want) {
				t.Errorf("Encode wrote %d bytes that differ from the %d bytes of proto.Marshal", len(got), len(want))
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
