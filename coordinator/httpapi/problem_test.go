package httpapi

import (
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A caller who has used up a limit is told 429, a caller of a coordinator that lacks something 503; both are told when to come back.
func TestLimits(t *testing.T) {
	t.Attr("rules", "H2")
	for code, want := range map[string]int{
		"E.AUTH.LIMIT": 429, "E.QUOTA.EXCEEDED": 429, "E.COORDINATOR.OVERLOADED": 503, "E.STORE.FULL": 503,
	} {
		st, err := status.New(codes.ResourceExhausted, "too much").WithDetails(
			&errdetails.ErrorInfo{Domain: "lessor", Reason: reasonOf(code), Metadata: map[string]string{"code": code}},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)})
		if err != nil {
			t.Fatal(err)
		}
		w, p := httptest.NewRecorder(), failed(st.Err())
		p.write(w)
		if w.Code != want || p.body.Code != code || p.body.RetryAfterMs != 1500 || w.Header().Get("Retry-After") != "2" {
			t.Errorf("%s is %d, %+v, Retry-After %q; want %d", code, w.Code, p.body, w.Header().Get("Retry-After"), want)
		}
	}
}
