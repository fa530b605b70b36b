package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X3, S5: each write waits for a slow client for at most readTimeout. When the credential has ended, all further writes together wait for lastWords.
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
			if want := time.Now().Add(readTimeout); !w.deadline.Equal(want) {
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
