package worker

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// refuseFor is a call that is refused as many times as given, with a wait of a second, and then succeeds. It counts the calls.
func refuseFor(times int, calls *int) grpc.UnaryInvoker {
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		if *calls++; *calls > times {
			return nil
		}
		st, _ := status.New(codes.ResourceExhausted, "used up").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
		return st.Err()
	}
}

// X5: a call that is refused with a wait is made again after that wait, but not if the context ends before. Without a
// deadline, that is at most ten times; with one, until a second before.
func TestRefusedCallsAreRepeated(t *testing.T) {
	t.Attr("rules", "X5")
	for name, test := range map[string]struct {
		refusals int
		within   time.Duration
		calls    int // 0: any number
		code     codes.Code
		took     time.Duration // at least
	}{
		"not refused":  {0, time.Minute, 1, codes.OK, 0},
		"three times":  {3, time.Minute, 4, codes.OK, 3 * time.Second},
		"no time":      {3, 900 * time.Millisecond, 1, codes.ResourceExhausted, 0},
		"till the end": {1000, 30 * time.Second, 0, codes.ResourceExhausted, 29 * time.Second},
		"for ever":     {1000, 0, 11, codes.ResourceExhausted, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.within)
					defer cancel()
				}
				calls, begin := 0, time.Now()
				err := retryRefusals(ctx, "", nil, nil, nil, refuseFor(test.refusals, &calls))
				if test.calls > 0 && calls != test.calls || status.Code(err) != test.code {
					t.Errorf("%d calls, error %v; want %d calls, %v", calls, err, test.calls, test.code)
				}
				if time.Since(begin) < test.took || test.within > 0 && time.Since(begin) > test.within {
					t.Errorf("%d calls took %v, want at least %v", calls, time.Since(begin), test.took)
				}
			})
		})
	}
}

// X5: if the context of a refused call is cancelled during the wait, the call returns the refusal.
func TestRefusedCallEndsWithItsContext(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		calls := 0
		if err := retryRefusals(ctx, "", nil, nil, nil, refuseFor(1000, &calls)); status.Code(err) != codes.ResourceExhausted || calls != 1 {
			t.Errorf("error %v after %d calls, want RESOURCE_EXHAUSTED after 1", err, calls)
		}
	})
}

// stopping is a coordinator that stops.
type stopping struct {
	lessorv1.UnimplementedTaskServiceServer
	calls atomic.Int32
}

func (s *stopping) SubmitTask(context.Context, *lessorv1.SubmitTaskRequest) (*lessorv1.SubmitTaskResponse, error) {
	s.calls.Add(1)
	return nil, refusal.Status(engine.ErrStopped)
}

// successor is the one that comes after it.
type successor struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (successor) SubmitTask(context.Context, *lessorv1.SubmitTaskRequest) (*lessorv1.SubmitTaskResponse, error) {
	return &lessorv1.SubmitTaskResponse{Created: true}, nil
}

// A submit that a coordinator refuses because it stops is made again once there is one that serves. If there is none in time, its error is still the
// refusal, which says that no task was made.
func TestCallOutlivesACoordinatorThatStops(t *testing.T) {
	for name, test := range map[string]struct {
		away, within time.Duration
		code         codes.Code
		took         time.Duration // at least
	}{
		"in time":              {20 * time.Second, time.Minute, codes.OK, 20 * time.Second},
		"away for longer":      {time.Hour, 10 * time.Second, codes.Unavailable, 10 * time.Second},
		"away for long":        {time.Hour, time.Hour, codes.Unavailable, mostAway},
		"no time for the wait": {time.Hour, time.Second / 2, codes.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var listener atomic.Pointer[bufconn.Listener]
				serve := func(s lessorv1.TaskServiceServer) *grpc.Server {
					server, lis := grpc.NewServer(), bufconn.Listen(1<<20)
					lessorv1.RegisterTaskServiceServer(server, s)
					listener.Store(lis)
					go func() { _ = server.Serve(lis) }()
					t.Cleanup(server.Stop)
					return server
				}
				first := &stopping{}
				server := serve(first)
				conn, err := Dial("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.Load().DialContext(ctx) }))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				time.AfterFunc(time.Second/10, server.GracefulStop)
				time.AfterFunc(test.away, func() { serve(successor{}) })
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				begin := time.Now()
				_, err = lessorv1.NewTaskServiceClient(conn).SubmitTask(ctx, &lessorv1.SubmitTaskRequest{})
				if status.Code(err) != test.code || err != nil && refusal.CodeOf(err) != refusal.CodeStopping || first.calls.Load() != 1 {
					t.Errorf("after %d calls: %v, want %v and one call", first.calls.Load(), err, test.code)
				}
				if took := time.Since(begin); took < test.took || took > test.took+10*time.Second {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
}
