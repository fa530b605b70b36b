package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
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

// X5: a call that is refused with a wait is made again after that wait, but not if the context ends before, and at most ten times.
func TestRefusedCallsAreRepeated(t *testing.T) {
	t.Attr("rules", "X5")
	for name, test := range map[string]struct {
		refusals int
		within   time.Duration
		calls    int
		code     codes.Code
	}{
		"not refused": {0, time.Minute, 1, codes.OK},
		"three times": {3, time.Minute, 4, codes.OK},
		"no time":     {3, 900 * time.Millisecond, 1, codes.ResourceExhausted},
		"for ever":    {1000, time.Hour, 11, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				calls, begin := 0, time.Now()
				err := retryQuotaRefusals(ctx, "", nil, nil, nil, refuseFor(test.refusals, &calls))
				if calls != test.calls || status.Code(err) != test.code {
					t.Errorf("%d calls, error %v; want %d calls, %v", calls, err, test.calls, test.code)
				}
				if least := time.Duration(test.calls-1) * time.Second; time.Since(begin) < least {
					t.Errorf("%d calls took %v, want at least %v", calls, time.Since(begin), least)
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
		if err := retryQuotaRefusals(ctx, "", nil, nil, nil, refuseFor(1000, &calls)); status.Code(err) != codes.ResourceExhausted || calls != 1 {
			t.Errorf("error %v after %d calls, want RESOURCE_EXHAUSTED after 1", err, calls)
		}
	})
}
