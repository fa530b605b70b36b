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

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
)

// A problem may be shared by all requests, so what is said about one of them is said of a copy.
func TestProblemsAreCopied(t *testing.T) {
	shared := newProblem(kindInvalid, codeInvalid, "it cannot be read")
	shared.logged = true
	before := *shared
	for name, told := range map[string]*problem{
		"under": shared.under("tasks"), "fromDoor": shared.fromDoor(), "rejected": rejected(shared, lease.KindFail),
	} {
		if told == shared || *told == before || *shared != before {
			t.Errorf("%s: %+v of %+v, want a copy that differs", name, *told, *shared)
		}
	}
}

// Every error of a call has a status and a word, whatever its code.
func TestEveryCodeHasAKind(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated+1; code++ {
		p := failed(status.Error(code, "because"))
		if p.status < 400 || p.body.Error == "" {
			t.Errorf("%v: status %d, error %q, want both", code, p.status, p.body.Error)
		}
	}
}

// H2: if a limit of the caller is used up, the answer is 429. If the coordinator lacks something,
// it is 503. Both say when to try again.
func TestStatusOfUsedUpLimits(t *testing.T) {
	t.Attr("rules", "H2")
	for code, want := range map[string]int{
		"E.AUTH.LIMIT": 429, "E.QUOTA.EXCEEDED": 429, "E.COORDINATOR.OVERLOADED": 503, "E.STORE.FULL": 503,
	} {
		st, err := status.New(codes.ResourceExhausted, "too much").WithDetails(
			detail.ErrorInfo(code),
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

// H2: a wait is rounded up to whole milliseconds in the body and to whole seconds in the header,
// because a repeat that comes too early is refused.
func TestWaitsAreRoundedUp(t *testing.T) {
	t.Attr("rules", "H2")
	for wait, want := range map[time.Duration]struct {
		ms     int64
		header string
	}{
		0: {0, ""}, 1: {1, "1"}, time.Millisecond: {1, "1"}, time.Millisecond + 1: {2, "1"}, time.Second: {1000, "1"},
		time.Second + 1: {1001, "2"},
	} {
		st, err := status.New(codes.ResourceExhausted, "too much").WithDetails(&errdetails.BadRequest{},
			&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		if err != nil {
			t.Fatal(err)
		}
		w, p := httptest.NewRecorder(), failed(st.Err())
		p.write(w)
		if p.body.RetryAfterMs != want.ms || w.Header().Get("Retry-After") != want.header || p.body.Field != "" {
			t.Errorf("a wait of %v is %+v with Retry-After %q, want %d ms and %q",
				wait, p.body, w.Header().Get("Retry-After"), want.ms, want.header)
		}
	}
}

// H2: the statuses that mean no verdict are answered with 503, so that a worker makes the call
// again; what the caller must change is a 4xx.
func TestStatuses(t *testing.T) {
	t.Attr("rules", "H2")
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := map[codes.Code]int{
			codes.InvalidArgument: 400, codes.OutOfRange: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403,
			codes.NotFound:      404,
			codes.AlreadyExists: 409, codes.FailedPrecondition: 409, codes.Aborted: 409, codes.ResourceExhausted: 429,
			codes.Unavailable: 503, codes.DeadlineExceeded: 503, codes.Canceled: 503,
		}[code]
		w, p := httptest.NewRecorder(), failed(status.Error(code, "why"))
		if p.status != cmp.Or(want, 500) || p.body.Verdict != nil || p.body.Message != "why" {
			t.Errorf("%v is %d, %+v; want %d", code, p.status, p.body, want)
		}
		p.write(w)
		if asked := w.Header().Get("WWW-Authenticate"); (asked == "Bearer") != (want == 401) {
			t.Errorf("%d has WWW-Authenticate %q; only 401 has Bearer", want, asked)
		}
	}
}

// deadlineRecorder records the deadlines of a request and of its response.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	readDeadline time.Time
	deadline     time.Time
	atHeader     time.Time // the deadline when the header was written
}

func (c *deadlineRecorder) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }
func (c *deadlineRecorder) SetReadDeadline(t time.Time) error  { c.readDeadline = t; return nil }
func (c *deadlineRecorder) WriteHeader(code int) {
	c.atHeader = c.deadline
	c.ResponseRecorder.WriteHeader(code)
}

// X5: after a request that waited for work, the response has the usual write deadline, whether it
// has tasks or an error, so that a client that does not read it is cut off.
func TestResponseAfterAWaitHasAWriteDeadline(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		for want, calls := range map[int]grpc.ClientConnInterface{200: slowCalls{fakeCalls{}}, 503: slowCalls{failingCalls{}}} {
			api := New(Config{
				Calls: calls, Door: fixedHolder{}, MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler),
				Answered: func(string, int) {},
			}, http.NewServeMux())
			w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
			api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/leases",
				strings.NewReader(`{"workerId": "w", "queues": ["q"]}`)))
			if w.Code != want || !w.atHeader.Equal(time.Now().Add(writeTimeout)) {
				t.Errorf("status %d with a write deadline of %v, want %d with %v",
					w.Code, w.atHeader, want, time.Now().Add(writeTimeout))
			}
		}
	})
}

// H2, X5: a body that may be longer than 4 MiB has 10 s for each 4 MiB, and its answer has the
// usual time after that. Any other body has the limits of the server.
func TestDeadlinesOfLongBodies(t *testing.T) {
	t.Attr("rules", "H2 X5")
	const limit = 9 << 20
	for length, want := range map[int64]time.Duration{
		0: 0, 2: 0, 4 << 20: 0, 4<<20 + 1: 20 * time.Second, 8 << 20: 20 * time.Second, limit: 30 * time.Second,
		limit + 1: 30 * time.Second,
		1 << 60:   30 * time.Second, -1: 30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			w, r := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()},
				httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader("{}"))
			r.ContentLength = length
			if _, p := (&api{Config: Config{MaxBody: limit}}).body(w, r); p != nil {
				t.Fatal(p.body.Message)
			}
			if want == 0 && (!w.readDeadline.IsZero() || !w.deadline.IsZero()) {
				t.Errorf("%d bytes may come until %v, and their answer may go until %v; want no deadlines",
					length, w.readDeadline, w.deadline)
			}
			if until := time.Now().Add(want); want != 0 && (!w.readDeadline.Equal(until) || !w.deadline.Equal(until.Add(writeTimeout))) {
				t.Errorf("%d bytes may come until %v, and their answer may go until %v; want %v and %v later",
					length, w.readDeadline, w.deadline, until, writeTimeout)
			}
		})
	}
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

// cancelledCalls answers each Heartbeat with CANCELLED.
type cancelledCalls struct{ grpc.ClientConnInterface }

func (cancelledCalls) Invoke(_ context.Context, _ string, _, answer any, _ ...grpc.CallOption) error {
	answer.(*lessorv1.HeartbeatResponse).Verdict = lessorv1.Verdict_VERDICT_CANCELLED
	return nil
}

// The log has one line about each refused request: a call logs its own verdict or error, and the
// API the rest.
func TestRefusedRequestsAreLoggedOnce(t *testing.T) {
	h := Holder{}
	h.Ticket.Task, h.Ticket.Attempt = lease.TaskID{Space: 1, Seq: 1}, 1
	for body, c := range map[string]struct {
		calls grpc.ClientConnInterface
		lines int
	}{
		`{"attempt": 1}`:                 {cancelledCalls{}, 0},
		`{"attempt": 1, "message": "m"}`: {failingCalls{}, 0},
		`{"attempt": 2}`:                 {nil, 1},
	} {
		var said bytes.Buffer
		api := New(Config{
			Calls: c.calls, Door: fixedHolder{h}, MaxBody: 1 << 20, Logger: slog.New(slog.NewTextHandler(&said, nil)),
			Answered: func(string, int) {},
		}, http.NewServeMux())
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/tasks/"+h.Ticket.Task.String()+"/heartbeat",
			strings.NewReader(body)))
		if got := strings.Count(said.String(), "\n"); got != c.lines || w.Code < 400 {
			t.Errorf("%s: %d %s, %d lines in the log, want %d:\n%s", body, w.Code, w.Body, got, c.lines, said.String())
		}
	}
}

// X5: requests that anybody can make without a credential leave nothing in the log at the default
// level, and neither do refusals by a quota.
func TestUnauthenticatedRequestsAreNotLogged(t *testing.T) {
	t.Attr("rules", "X5")
	var said bytes.Buffer
	api := New(Config{
		Calls: fakeCalls{}, Door: fixedHolder{}, MaxBody: 1 << 20, Logger: slog.New(slog.NewTextHandler(&said, nil)),
		Answered: func(string, int) {}, Open: true,
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
		if w.Code != c.want || !strings.Contains(w.Body.String(), `"verdict":null`) || said.Len() > 0 {
			t.Errorf("%s %s of %s: %d %s, want %d without a verdict; the log has %q",
				c.method, c.path, c.host, w.Code, w.Body, c.want, said.String())
		}
		said.Reset()
	}
	for code, want := range map[string]slog.Level{"E.QUOTA.ATTEMPTS": slog.LevelDebug, codeForbidden: slog.LevelInfo} {
		if got := newProblem(kindForbidden, code, "").level(); got != want {
			t.Errorf("%s is logged as %v, want %v", code, got, want)
		}
	}
}
