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
	"github.com/lessor-dev/lessor/internal/detail"
)

// refuseFor is a call that is refused as many times as given, for a reason and with a wait, and
// then succeeds. It counts the calls.
func refuseFor(times int, reason string, wait time.Duration, calls *int) grpc.UnaryInvoker {
	return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
		if *calls++; *calls > times {
			return nil
		}
		st, _ := status.New(codes.ResourceExhausted, "no room").WithDetails(
			&errdetails.ErrorInfo{Reason: reason, Domain: detail.Domain}, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		return st.Err()
	}
}

// X5: a call that is refused with a wait is made again after that wait, but not if the context ends
// before, and at most ten times. A quota is waited for until a second before the deadline, if there
// is one.
func TestRefusedCallsAreRepeated(t *testing.T) {
	t.Attr("rules", "X5")
	const quota, always = "QUOTA_CALLS", 1_000_000
	for name, test := range map[string]struct {
		refusals    int
		reason      string
		wait        time.Duration
		within      time.Duration
		least, most int // calls
		code        codes.Code
		took        time.Duration // at least
	}{
		"not refused":       {0, quota, time.Second, time.Minute, 1, 1, codes.OK, 0},
		"three times":       {3, quota, time.Second, time.Minute, 4, 4, codes.OK, 3 * time.Second},
		"no time":           {3, quota, time.Second, 900 * time.Millisecond, 1, 1, codes.ResourceExhausted, 0},
		"till the end":      {always, quota, time.Second, 30 * time.Second, 12, 30, codes.ResourceExhausted, 29 * time.Second},
		"in short waits":    {always, quota, 2 * time.Millisecond, 30 * time.Second, 12, 60, codes.ResourceExhausted, 29 * time.Second},
		"in none":           {always, quota, 0, 30 * time.Second, 12, 60, codes.ResourceExhausted, 29 * time.Second},
		"for ever":          {always, quota, time.Second, 0, 11, 11, codes.ResourceExhausted, 10 * time.Second},
		"in a short time":   {3, quota, time.Millisecond, 990 * time.Millisecond, 4, 4, codes.OK, 0},
		"for another cause": {always, "DISK_FULL", time.Second, time.Hour, 11, 11, codes.ResourceExhausted, 10 * time.Second},
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
				err := retryRefusals(ctx, "", nil, nil, nil, refuseFor(test.refusals, test.reason, test.wait, &calls))
				if calls < test.least || calls > test.most || status.Code(err) != test.code {
					t.Errorf("%d calls, error %v; want %d to %d calls, %v", calls, err, test.least, test.most, test.code)
				}
				if took := time.Since(begin); took < test.took || test.within > 0 && took > test.within {
					t.Errorf("%d calls took %v, want at least %v and at most %v", calls, took, test.took, test.within)
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
		if err := retryRefusals(ctx, "", nil, nil, nil, refuseFor(1000, "QUOTA_CALLS", time.Second, &calls)); status.Code(err) != codes.ResourceExhausted || calls != 1 {
			t.Errorf("error %v after %d calls, want RESOURCE_EXHAUSTED after 1", err, calls)
		}
	})
}

// stopping is a coordinator that stops.
type stopping struct {
	lessorv1.UnimplementedTaskServiceServer
	before int32 // calls that it refuses because of a quota, before it stops
	calls  atomic.Int32
	stop   func() // ends it in order
}

func (s *stopping) SubmitTask(ctx context.Context, _ *lessorv1.SubmitTaskRequest) (*lessorv1.SubmitTaskResponse, error) {
	if n := s.calls.Add(1); n <= s.before {
		calls := 0
		return nil, refuseFor(1, "QUOTA_CALLS", time.Millisecond, &calls)(ctx, "", nil, nil, nil)
	}
	time.AfterFunc(time.Second/10, s.stop)
	return nil, refusal.Status(engine.ErrStopped)
}

// successor is the one that comes after it.
type successor struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (successor) SubmitTask(context.Context, *lessorv1.SubmitTaskRequest) (*lessorv1.SubmitTaskResponse, error) {
	return &lessorv1.SubmitTaskResponse{Created: true}, nil
}

// A submit that a coordinator refuses because it stops is made again once there is one that serves.
// If there is none in time, its error is still the refusal, which says that no task was made.
func TestCallOutlivesACoordinatorThatStops(t *testing.T) {
	for name, test := range map[string]struct {
		away, within time.Duration
		refused      int32 // before that, by a quota
		code         codes.Code
		took         time.Duration // at least
	}{
		"in time":               {20 * time.Second, time.Minute, 0, codes.OK, 20 * time.Second},
		"after a wait for room": {30 * time.Second, time.Minute, 12, codes.OK, 30 * time.Second},
		"away for longer":       {time.Hour, 10 * time.Second, 0, codes.Unavailable, 10 * time.Second},
		"away for long":         {time.Hour, time.Hour, 0, codes.Unavailable, mostAway},
		"no time for the wait":  {time.Hour, time.Second / 2, 0, codes.Unavailable, 0},
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
				first := &stopping{before: test.refused}
				first.stop = serve(first).GracefulStop
				conn, err := Dial("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
						return listener.Load().DialContext(ctx)
					}))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				time.AfterFunc(test.away, func() { serve(successor{}) })
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				begin := time.Now()
				_, err = lessorv1.NewTaskServiceClient(conn).SubmitTask(ctx, &lessorv1.SubmitTaskRequest{})
				if status.Code(err) != test.code || err != nil && refusal.CodeOf(err) != refusal.CodeStopping || first.calls.Load() != 1+test.refused {
					t.Errorf("after %d calls: %v, want %v and one call", first.calls.Load(), err, test.code)
				}
				if took := time.Since(begin); took < test.took || took > test.took+10*time.Second {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
}
