package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// longCalls take a minute, but for a GetTask, and note the write deadline of the response at that
// time.
type longCalls struct {
	w      *deadlineRecorder
	during time.Time
	calls  int
}

func (c *longCalls) take() {
	time.Sleep(time.Minute)
	c.calls++
	c.during = c.w.deadline
}

func (c *longCalls) Invoke(_ context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	if method != lessorv1.TaskService_GetTask_FullMethodName {
		c.take()
	}
	return nil
}

func (c *longCalls) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return endlessWait{of: c}, nil
}

// endlessWait is an AwaitTasks that ends after a minute without an answer.
type endlessWait struct {
	grpc.ClientStream
	of *longCalls
}

func (endlessWait) SendMsg(any) error { return nil }
func (endlessWait) CloseSend() error  { return nil }

func (s endlessWait) RecvMsg(any) error {
	s.of.take()
	return io.EOF
}

// H2, X5: a request that waits or makes many steps may take longer than the server gives an answer.
// Its answer then has the usual time, so that a client that does not read it is cut off.
func TestLongRequestsHaveNoWriteDeadline(t *testing.T) {
	t.Attr("rules", "H2 X5")
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/leases", `{"workerId": "w", "queues": ["q"]}`},
		{http.MethodGet, "/v1/tasks/t1?waitMs=60000", ""},
		{http.MethodPost, "/v1/tasks:batchCancel", `{"all": true}`},
		{http.MethodPost, "/v1/tasks:batchRetry", `{"all": true}`},
		{http.MethodPost, "/v1/tasks:batchDelete", `{"all": true}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder(), deadline: time.Now().Add(writeTimeout)}
			calls := &longCalls{w: w}
			api, _, _ := newAPIWithDoor(Config{Calls: calls})
			api.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
			if want := time.Now().Add(writeTimeout); w.Code != http.StatusOK || calls.calls != 1 || !calls.during.IsZero() || !w.atHeader.Equal(want) {
				t.Errorf("%s: %d after %d calls, with the write deadlines %v during the call and %v for the answer; want none, and %v",
					c.path, w.Code, calls.calls, calls.during, w.atHeader, want)
			}
		})
	}
}

// A caller that leaves or is let in no longer while it waits gets the error of the wait, and no
// GetTask is made.
func TestWaitOfACallerWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &recordingCalls{}
		a := &api{tasks: lessorv1.NewTaskServiceClient(goneCalls{calls})}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/tasks/t1?waitMs=60000", nil)
		if p := a.get(w, r); p == nil || p.status != http.StatusInternalServerError || calls.request != nil || w.Body.Len() > 0 {
			t.Errorf("the problem is %+v, the call %v, the answer %q; want the error of the wait alone", p, calls.request, w.Body)
		}
	})
}

// goneCalls lets a wait fail when its context ends.
type goneCalls struct{ *recordingCalls }

func (goneCalls) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	<-ctx.Done()
	return nil, errors.New("over")
}
