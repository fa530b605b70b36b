package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// H2: if a limit of the caller is used up, the answer is 429. If the coordinator lacks something, it is 503. Both say when to try again.
func TestStatusOfUsedUpLimits(t *testing.T) {
	t.Attr("rules", "H2")
	for code, want := range map[string]int{
		"E.AUTH.LIMIT": 429, "E.QUOTA.EXCEEDED": 429, "E.COORDINATOR.OVERLOADED": 503, "E.STORE.FULL": 503,
	} {
		st, err := status.New(codes.ResourceExhausted, "too much").WithDetails(
			&errdetails.ErrorInfo{Domain: "lessor", Reason: reasonOf(code), Metadata: map[string]string{"code": code}},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(1499*time.Millisecond + time.Microsecond)})
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

// H2: the statuses that mean no verdict are answered with 503, so that a worker makes the call again; what the caller must change is a 4xx.
func TestStatuses(t *testing.T) {
	t.Attr("rules", "H2")
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := map[codes.Code]int{
			codes.InvalidArgument: 400, codes.OutOfRange: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403, codes.NotFound: 404,
			codes.AlreadyExists: 409, codes.FailedPrecondition: 409, codes.Aborted: 409, codes.ResourceExhausted: 429,
			codes.Unavailable: 503, codes.DeadlineExceeded: 503, codes.Canceled: 503,
		}[code]
		if p := failed(status.Error(code, "why")); p.status != cmp.Or(want, 500) || p.body.Verdict != nil || p.body.Message != "why" {
			t.Errorf("%v is %d, %+v; want %d", code, p.status, p.body, want)
		}
	}
}

// deadlineRecorder records the write deadlines of a response.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadline time.Time
	atHeader time.Time // the deadline when the header was written
}

func (c *deadlineRecorder) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }
func (*deadlineRecorder) SetReadDeadline(time.Time) error      { return nil }
func (c *deadlineRecorder) WriteHeader(code int) {
	c.atHeader = c.deadline
	c.ResponseRecorder.WriteHeader(code)
}

// X5: after a request that waited for work, the response has the usual write deadline, whether it has tasks or an error, so that a client that does
// not read it is cut off.
func TestResponseAfterAWaitHasAWriteDeadline(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		for want, calls := range map[int]grpc.ClientConnInterface{200: slowCalls{fakeCalls{}}, 503: slowCalls{failingCalls{}}} {
			api := New(Config{
				Calls: calls, Door: fixedHolder{}, MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler), Answered: func(string, int) {},
			}, http.NewServeMux())
			w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
			api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/leases", strings.NewReader(`{"workerId": "w", "queues": ["q"]}`)))
			if w.Code != want || !w.atHeader.Equal(time.Now().Add(writeTimeout)) {
				t.Errorf("status %d with a write deadline of %v, want %d with %v", w.Code, w.atHeader, want, time.Now().Add(writeTimeout))
			}
		}
	})
}

// late calls take a minute; failing calls fail.
type (
	slowCalls    struct{ grpc.ClientConnInterface }
	failingCalls struct{ grpc.ClientConnInterface }
)

func (c slowCalls) Invoke(ctx context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	time.Sleep(time.Minute)
	return c.ClientConnInterface.Invoke(ctx, method, request, answer)
}

func (failingCalls) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unavailable, "gone")
}

// X5: requests that anybody can make without a credential leave nothing in the log at the default level, and neither do refusals by a quota.
func TestUnauthenticatedRequestsAreNotLogged(t *testing.T) {
	t.Attr("rules", "X5")
	var said bytes.Buffer
	api := New(Config{
		Calls: fakeCalls{}, Door: fixedHolder{}, MaxBody: 1 << 20, Logger: slog.New(slog.NewTextHandler(&said, nil)), Answered: func(string, int) {}, Open: true,
	}, http.NewServeMux())
	for _, c := range []struct {
		method, path, host, origin string
		want                       int
	}{
		{http.MethodGet, "/nothing", "localhost", "", 404},
		{http.MethodPut, "/v1/tasks", "localhost", "", 405},
		{http.MethodPost, "/v1/tasks", "localhost", "http://evil.example", 403},
		{http.MethodPost, "/v1/tasks", "evil.example", "", 403},
	} {
		req := httptest.NewRequest(c.method, c.path, nil)
		req.Host = c.host
		req.Header.Set("Origin", c.origin)
		req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv6loopback}))
		w := httptest.NewRecorder()
		api.ServeHTTP(w, req)
		if w.Code != c.want || said.Len() > 0 {
			t.Errorf("%s %s of %s: %d, want %d; the log has %q", c.method, c.path, c.host, w.Code, c.want, said.String())
		}
		said.Reset()
	}
	for code, want := range map[string]slog.Level{"E.QUOTA.ATTEMPTS": slog.LevelDebug, codeForbidden: slog.LevelInfo} {
		if got := newProblem(kindForbidden, code, "").level(); got != want {
			t.Errorf("%s is logged as %v, want %v", code, got, want)
		}
	}
}
