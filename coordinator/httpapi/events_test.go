package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X3, S5: each write waits for a slow client for at most writeTimeout. When the credential has ended, all further writes together wait for lastWords.
func TestWriteDeadlinesOfAStream(t *testing.T) {
	t.Attr("rules", "S5 X3")
	synctest.Test(t, func(t *testing.T) {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		s := newEventStream(w)
		ctx, end := context.WithCancel(t.Context())
		forget := s.endsWith(ctx)
		for range 2 {
			time.Sleep(time.Hour)
			_ = s.write("x")
			if want := time.Now().Add(writeTimeout); !w.deadline.Equal(want) {
				t.Errorf("a write waits until %v, want %v", w.deadline, want)
			}
		}
		end()
		synctest.Wait()
		want := time.Now().Add(lastWords)
		time.Sleep(lastWords / 2)
		_ = s.write("x")
		if !w.deadline.Equal(want) {
			t.Errorf("after the end a write waits until %v, want %v", w.deadline, want)
		}
		forget()
	})
}

// slowError is an error that takes a while to become a status.
type slowError struct{}

func (slowError) Error() string { return "the store does not answer" }

func (slowError) GRPCStatus() *status.Status {
	time.Sleep(2 * firstPing)
	return status.New(codes.Unavailable, "no")
}

// failedWatch is a watch that fails.
type failedWatch struct {
	grpc.ServerStreamingClient[lessorv1.WatchTaskResponse]
}

func (failedWatch) Recv() (*lessorv1.WatchTaskResponse, error) { return nil, slowError{} }

// A watch that fails before its first event is answered with a problem: no comment begins a stream in the meantime.
func TestNoCommentBeforeAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		if p := follow(t.Context(), newEventStream(w), failedWatch{}); p == nil || p.status != http.StatusServiceUnavailable || w.Body.Len() > 0 {
			t.Errorf("the problem is %v, after the answer %d %q; want a problem with status 503 and no answer before it", p, w.Code, w.Body)
		}
	})
}

// taskCalls answers GetTask with a task. Any other call panics.
type taskCalls struct {
	grpc.ClientConnInterface
	task *lessorv1.Task
}

func (c taskCalls) Invoke(_ context.Context, _ string, _, answer any, _ ...grpc.CallOption) error {
	proto.Merge(answer.(*lessorv1.GetTaskResponse), &lessorv1.GetTaskResponse{Task: c.task})
	return nil
}

// HEAD is answered at once, without a watch: with 204 if a GET would bring no event.
func TestHeadOfEvents(t *testing.T) {
	for state, want := range map[lessorv1.TaskState]map[string]int{
		lessorv1.TaskState_TASK_STATE_RUNNING: {"": 200, "3": 200}, lessorv1.TaskState_TASK_STATE_FAILED: {"": 200, "2": 200, "3": 204},
	} {
		for after, want := range want {
			history := []*lessorv1.HistoryEvent{{Sequence: 2}, {Sequence: 3}}
			api, _, task := newAPIWithDoor(Config{Calls: taskCalls{task: &lessorv1.Task{State: state, History: history}}})
			r := httptest.NewRequest(http.MethodHead, task+"/events", nil)
			r.Header.Set("Last-Event-ID", after)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%v after %q: %d, want %d", state, after, w.Code, want)
			}
		}
	}
}
