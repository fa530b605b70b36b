package producer_test

import (
	"context"
	"slices"
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
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// Wait returns a task once it is final, although the coordinator restarts in the meantime.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "echo", Payload: []byte("hi")})
		go func() {
			time.Sleep(time.Hour)
			c.Restart()
			time.Sleep(time.Hour)
			w := c.Worker("q", worker.Config{})
			w.Handle("echo", func(_ context.Context, t *worker.Task) ([]byte, error) { return t.Payload, nil })
			c.Run(w)
		}()
		begun := time.Now()
		task, err := p.Wait(t.Context(), id)
		if err != nil || task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || string(task.GetOutput()) != "hi" {
			t.Errorf("Wait = %v, %v; want the completed task with output hi", task, err)
		}
		if waited := time.Since(begun); waited < 2*time.Hour {
			t.Errorf("Wait returned after %v, want not before the worker came, after 2h", waited)
		}
	})
}

// A task that does not exist, or is deleted while Wait waits for it, is NOT_FOUND. The end of ctx ends the wait.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		if task, err := p.Wait(t.Context(), "t0000000000000001"); status.Code(err) != codes.NotFound {
			t.Errorf("Wait for an unknown task = %v, %v; want NOT_FOUND", task, err)
		}
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if task, err := p.Wait(ctx, id); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("Wait = %v, %v; want DEADLINE_EXCEEDED", task, err)
		}
		deleted := make(chan struct{})
		time.AfterFunc(time.Hour, func() {
			defer close(deleted)
			if _, err := lessorv1.NewTaskServiceClient(c.Conn()).DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
				t.Error(err)
			}
		})
		if task, err := p.Wait(t.Context(), id); status.Code(err) != codes.NotFound {
			t.Errorf("Wait for a task that is deleted = %v, %v; want NOT_FOUND", task, err)
		}
		<-deleted // the watch can end before the answer is here
	})
}

// watches is a coordinator whose watches end in turn as its list says, and the last of them again and again.
type watches struct {
	lessorv1.UnimplementedTaskServiceServer
	list  []watch
	calls int
}

// watch is how one watch ends, and what GetTask says of the task after it.
type watch struct {
	began bool // it sends an event first
	end   error
	state lessorv1.TaskState
}

func (w *watches) current() watch { return w.list[min(w.calls, len(w.list))-1] }

func (w *watches) WatchTask(_ *lessorv1.WatchTaskRequest, events grpc.ServerStreamingServer[lessorv1.WatchTaskResponse]) error {
	w.calls++
	if w.current().began {
		if err := events.Send(&lessorv1.WatchTaskResponse{}); err != nil {
			return err
		}
	}
	return w.current().end
}

func (w *watches) GetTask(context.Context, *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{State: w.current().state}}, nil
}

// Wait tries again after whatever may be over soon: an outage, a quota that is used up, the end of a credential, a task that somebody has retried. Anything
// else is its error, and so is a credential that was refused at once.
func TestWaitTriesAgain(t *testing.T) {
	full, err := status.New(codes.ResourceExhausted, "full").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	fault, err := status.New(codes.Internal, "no").WithDetails(&errdetails.ErrorInfo{Reason: "INTERNAL"})
	if err != nil {
		t.Fatal(err)
	}
	const completed, failed, ready = lessorv1.TaskState_TASK_STATE_COMPLETED, lessorv1.TaskState_TASK_STATE_FAILED, lessorv1.TaskState_TASK_STATE_READY
	for name, test := range map[string]struct {
		list  []watch
		want  codes.Code
		calls int
		least time.Duration // that it takes
	}{
		"final at once": {[]watch{{began: true, state: failed}}, codes.OK, 1, 0},
		"outages": {[]watch{
			{end: status.Error(codes.Unavailable, "away")}, {began: true, end: status.Error(codes.Unavailable, "away")}, {state: completed},
		}, codes.OK, 3, 50 * time.Millisecond},
		"quotas":                {append(slices.Repeat([]watch{{end: full.Err()}}, 20), watch{state: completed}), codes.OK, 21, 20 * time.Minute},
		"retried":               {[]watch{{began: true, state: ready}, {began: true, state: completed}}, codes.OK, 2, 0},
		"credential has ended":  {[]watch{{began: true, end: status.Error(codes.Unauthenticated, "expired")}, {state: completed}}, codes.OK, 2, 0},
		"credential is refused": {[]watch{{end: status.Error(codes.Unauthenticated, "unknown")}, {state: completed}}, codes.Unauthenticated, 1, 0},
		"role is refused":       {[]watch{{end: status.Error(codes.PermissionDenied, "no")}, {state: completed}}, codes.PermissionDenied, 1, 0},
		"no wait is told":       {[]watch{{end: status.Error(codes.ResourceExhausted, "never")}, {state: completed}}, codes.ResourceExhausted, 1, 0},
		"a fault":               {[]watch{{began: true, end: fault.Err()}, {state: completed}}, codes.Internal, 1, 0},
		"a proxy cuts it": {[]watch{
			{began: true, end: status.Error(codes.Internal, "RST_STREAM")}, {began: true, end: status.Error(codes.Canceled, "RST_STREAM")}, {state: completed},
		}, codes.OK, 3, 0},
		"no watch begins": {[]watch{{end: status.Error(codes.Internal, "no")}, {state: completed}}, codes.Internal, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &watches{list: test.list}
			withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				begun := time.Now()
				task, err := p.Wait(t.Context(), "t1")
				if status.Code(err) != test.want || s.calls != test.calls {
					t.Errorf("Wait = %v, %v after %d watches; want %v after %d", task, err, s.calls, test.want, test.calls)
				}
				if want := s.current().state; err == nil && task.GetState() != want {
					t.Errorf("state = %v, want %v", task.GetState(), want)
				}
				if took := time.Since(begun); took < test.least {
					t.Errorf("Wait took %v, want at least %v", took, test.least)
				}
			})
		})
	}
}

// While the coordinator is away, the wait between two tries grows, and the error at the end of ctx says what was wrong.
func TestWaitWhileAway(t *testing.T) {
	s := &watches{list: []watch{{end: status.Error(codes.Unavailable, "the disk is full")}}}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := p.Wait(ctx, "t1")
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("error = %v, want DEADLINE_EXCEEDED and what the last try said", err)
		}
		if s.calls < 3600/5 || s.calls > 3600*2/5+10 {
			t.Errorf("%d watches in an hour, want one every 2.5 to 5s", s.calls)
		}
	})
}
