package refused

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func refusal(t *testing.T, code codes.Code, wait time.Duration) error {
	t.Helper()
	st, err := status.New(code, "no").WithDetails(
		&errdetails.ErrorInfo{Reason: "QUOTA_CALLS", Domain: "lessor"}, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		t.Fatal(err)
	}
	return st.Err()
}

// X5: a call that was refused with a wait is repeated after that wait and some jitter, at most
// MaxRetries times. A call with any other error is not repeated.
func TestWait(t *testing.T) {
	t.Attr("rules", "X5")
	for name, err := range map[string]error{
		"no status": errors.New("no"), "no wait": status.Error(codes.ResourceExhausted, "no"), "no refusal": refusal(t, codes.Unavailable, time.Second),
		"no error": nil,
	} {
		if _, ok := Wait(err, 0); ok {
			t.Errorf("%s: Wait says that the call is repeated, want that it is not", name)
		}
	}
	drawn := map[time.Duration]bool{}
	for repeats := range MaxRetries {
		for range 100 {
			wait, ok := Wait(refusal(t, codes.ResourceExhausted, 3*time.Second), repeats)
			if jitter := wait - 3*time.Second; !ok || jitter < 0 || jitter > min(firstMaxJitter<<repeats, maxJitter) {
				t.Fatalf("repeat %d: Wait = %v, %v; want 3s and at most %v more, true",
					repeats, wait, ok, min(firstMaxJitter<<repeats, maxJitter))
			}
			drawn[wait] = true
		}
	}
	if len(drawn) < MaxRetries {
		t.Errorf("%d different waits of %d, want at least %d: there is no jitter", len(drawn), 100*MaxRetries, MaxRetries)
	}
	if _, ok := Wait(refusal(t, codes.ResourceExhausted, time.Second), MaxRetries); ok {
		t.Errorf("Wait says that the call is repeated after %d repeats, want that it is not", MaxRetries)
	}
}
