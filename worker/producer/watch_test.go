package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// S5: a watch shows each event of a task's history once, in order, and what an attempt prints,
// although the coordinator restarts meanwhile. It ends with the task.
func TestWatch(t *testing.T) {
	t.Attr("rules", "S5")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(_ context.Context, task *worker.Task) ([]byte, error) {
			fmt.Fprint(task.Output("log"), "attempt ", task.Attempt)
			time.Sleep(time.Minute)
			if task.Attempt == 1 {
				return nil, worker.RetryAfter(time.Hour, errors.New("not yet"))
			}
			return nil, nil
		})
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		time.AfterFunc(30*time.Minute, c.Restart)
		var types []lessorv1.HistoryEventType
		var printed strings.Builder
		for event, err := range p.Watch(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			if h := event.GetHistory(); h != nil {
				types = append(types, h.GetType())
			}
			printed.WriteString(event.GetChunk().GetText())
		}
		var want []lessorv1.HistoryEventType
		for _, h := range c.Task(id).GetHistory() {
			want = append(want, h.GetType())
		}
		if len(want) < 7 || !slices.Equal(types, want) {
			t.Errorf("the watch showed %v, want the history of the task: %v", types, want)
		}
		if got := printed.String(); got != "attempt 1attempt 2" {
			t.Errorf("the watch showed the output %q, want that of both attempts", got)
		}
		for _, err := range p.Watch(t.Context(), id) { // the stream ends with the loop, or goleak finds it
			if err != nil {
				t.Error(err)
			}
			break
		}
	})
}

// A watch of a task that does not exist is NOT_FOUND, and one of a bad id INVALID_ARGUMENT. A
// deleted task, and the end of ctx, end a watch.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		watch := func(ctx context.Context, id string, each func(*lessorv1.WatchTaskResponse)) (last error) {
			for event, err := range p.Watch(ctx, id) {
				if last != nil {
					t.Errorf("%v, %v after the error %v", event, err, last)
				}
				if last = err; err == nil {
					each(event)
				}
			}
			return last
		}
		none := func(*lessorv1.WatchTaskResponse) {}
		if err := watch(t.Context(), "t0000000000000001", none); status.Code(err) != codes.NotFound {
			t.Errorf("a watch of an unknown task ends with %v, want NOT_FOUND", err)
		}
		if err := watch(t.Context(), "\xff", none); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a watch of a bad id ends with %v, want INVALID_ARGUMENT", err)
		}
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := watch(ctx, id, none); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a watch with a deadline ends with %v, want DEADLINE_EXCEEDED", err)
		}
		events, deleted := 0, false
		err := watch(t.Context(), id, func(event *lessorv1.WatchTaskResponse) {
			if events++; events == 1 {
				go func() {
					if _, err := lessorv1.NewTaskServiceClient(c.Conn()).DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
						t.Error(err)
					}
				}()
			}
			deleted = event.GetDeleted() != nil
		})
		if err != nil || !deleted {
			t.Errorf("a watch of a task that is deleted ends with %v, and the last event is that: %t; want no error and true", err, deleted)
		}
		synctest.Wait() // the answer to the deletion
	})
}

// watched is a coordinator whose watches send what its list says, in turn, and then end so.
type watched struct {
	lessorv1.UnimplementedTaskServiceServer
	list  []watchedStream
	after []uint64 // from which the watches were to resume
}

type watchedStream struct {
	states []lessorv1.TaskState // of events with the sequences that follow
	end    error
}

func (s *watched) WatchTask(req *lessorv1.WatchTaskRequest, stream grpc.ServerStreamingServer[lessorv1.WatchTaskResponse]) error {
	s.after = append(s.after, req.GetAfterSequence())
	now := s.list[0]
	s.list = s.list[1:]
	for i, state := range now.states {
		if err := stream.Send(&lessorv1.WatchTaskResponse{TaskState: state, Sequence: req.GetAfterSequence() + uint64(i) + 1}); err != nil {
			return err
		}
	}
	return now.end
}

// A watch is over when a stream ends after the task was final. One that is lost there resumes,
// because the event may be of an earlier round, and so does one that somebody in between ends
// before.
func TestWatchResumes(t *testing.T) {
	const ready, failed = lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_FAILED
	s := &watched{list: []watchedStream{
		{end: errAway},
		{states: []lessorv1.TaskState{ready, failed}, end: errAway},
		{states: []lessorv1.TaskState{ready}},
		{states: []lessorv1.TaskState{failed}, end: errAway},
		{},
	}}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		var got []uint64
		for event, err := range p.Watch(t.Context(), "t") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, event.GetSequence())
		}
		if want := []uint64{1, 2, 3, 4}; !slices.Equal(got, want) {
			t.Errorf("the events are %v, want %v", got, want)
		}
		if want := []uint64{0, 0, 2, 3, 4}; !slices.Equal(s.after, want) {
			t.Errorf("the streams began after %v, want %v", s.after, want)
		}
	})
}
