package producer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// WaitRun returns when the last task of its run has ended, with the number of tasks in each state,
// although the coordinator restarts in the meantime. A task that is deleted is not waited for any
// more, and not counted. Tasks of other runs and workspaces do not matter.
func TestWaitRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		for _, kind := range []string{"works", "fails", "works", "works", "fails"} {
			c.Submit(&lessorv1.TaskSpec{Queue: "q", RunId: "r", Type: kind})
		}
		cancelled := c.Submit(&lessorv1.TaskSpec{Queue: "nobody", RunId: "r"})
		deleted := c.Submit(&lessorv1.TaskSpec{Queue: "nobody", RunId: "r"})
		c.Submit(&lessorv1.TaskSpec{Queue: "nobody", RunId: "other"})
		c.Submit(&lessorv1.TaskSpec{Queue: "nobody", RunId: "r", WorkspaceId: "other"})
		w := c.Worker("q", worker.Config{})
		w.Handle("works", func(context.Context, *worker.Task) ([]byte, error) { time.Sleep(time.Minute); return nil, nil })
		w.Handle("fails", func(context.Context, *worker.Task) ([]byte, error) { return nil, worker.Permanent(errors.New("no")) })
		c.Run(w)
		time.AfterFunc(90*time.Second, c.Restart)
		time.AfterFunc(5*time.Minute, func() { c.Cancel(cancelled, "nobody takes it") })
		over := remove(t, c, deleted, 10*time.Minute)
		begun := time.Now()
		counts, err := p.WaitRun(t.Context(), producer.Run{ID: "r"})
		if want := (producer.RunCounts{Completed: 3, Failed: 2, Cancelled: 1}); err != nil || counts != want {
			t.Errorf("WaitRun = %v, %v; want %v", counts, err, want)
		}
		if late := time.Since(begun) - 10*time.Minute; late < 0 || late > time.Second {
			t.Errorf("WaitRun returned %v after the end of the last task, want at once", late)
		}
		<-over
	})
}

// remove deletes a task when some time has passed, and then closes the channel.
func remove(t *testing.T, c *workertest.Coordinator, id string, after time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(after, func() {
		defer close(over)
		if _, err := lessorv1.NewTaskServiceClient(c.Conn()).DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Error(err)
		}
	})
	return over
}

// A handler may submit the next task of its run before it returns: WaitRun waits for that, too.
func TestWaitRunThatGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			time.Sleep(time.Minute)
			if len(task.Payload) < 10 {
				_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", RunId: "r", Payload: append(task.Payload, 'x')})
				return nil, err
			}
			return nil, nil
		})
		c.Run(w)
		c.Submit(&lessorv1.TaskSpec{Queue: "q", RunId: "r"})
		counts, err := p.WaitRun(t.Context(), producer.Run{ID: "r"})
		if want := (producer.RunCounts{Completed: 11}); err != nil || counts != want {
			t.Errorf("WaitRun = %v, %v; want %v", counts, err, want)
		}
	})
}

// asked counts the calls of a client, and the tasks that it has waited for.
type asked struct {
	grpc.ClientConnInterface
	lists, waits atomic.Int64
}

func (c *asked) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.lists.Add(1)
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c *asked) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return &askedStream{s, c}, err
}

type askedStream struct {
	grpc.ClientStream
	c *asked
}

func (s *askedStream) SendMsg(m any) error {
	s.c.waits.Add(int64(len(m.(*lessorv1.AwaitTasksRequest).GetAdd())))
	return s.ClientStream.SendMsg(m)
}

// T9: a run of many pages is read a few times, in whatever order its tasks end, and few of them are
// waited for one by one. What is retried after its page was read is waited for, too, and counted as
// it ended then.
func TestWaitForALargeRun(t *testing.T) {
	t.Attr("rules", "T9")
	const n = 1500
	for name, priority := range map[string]func(i int) int32{
		"oldest first": func(int) int32 { return 0 },
		"newest first": func(i int) int32 { return int32(i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := workertest.Start(t)
				conn := &asked{ClientConnInterface: c.Conn()}
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				retried := c.Submit(&lessorv1.TaskSpec{Queue: "nobody", RunId: "r"})
				c.Cancel(retried, "")
				for i := range n {
					c.Submit(&lessorv1.TaskSpec{Queue: "q", RunId: "r", Priority: priority(i)})
				}
				c.Submit(&lessorv1.TaskSpec{Queue: "last", RunId: "r"})
				work := func(queue string) {
					w := c.Worker(queue, worker.Config{Concurrency: 10})
					w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { time.Sleep(time.Second); return nil, nil })
					c.Run(w)
				}
				work("q")
				time.AfterFunc(5*time.Minute, func() {
					if _, err := lessorv1.NewTaskServiceClient(c.Conn()).RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: retried}); err != nil {
						t.Error(err)
					}
					work("last")
				})
				time.AfterFunc(10*time.Minute, func() { work("nobody") })
				begun := time.Now()
				counts, err := p.WaitRun(t.Context(), producer.Run{ID: "r"})
				if want := (producer.RunCounts{Completed: n + 2}); err != nil || counts != want {
					t.Errorf("WaitRun = %v, %v; want %v", counts, err, want)
				}
				if took := time.Since(begun); took < 10*time.Minute || took > 11*time.Minute {
					t.Errorf("WaitRun returned after %v, want when the task that was retried has ended, after 10m", took)
				}
				const most = 30 * (n/1000 + 1) // some eight reads for each page, and the run once more
				if lists, waits := conn.lists.Load(), conn.waits.Load(); lists > most || waits > most {
					t.Errorf("WaitRun made %d lists, and waited for %d tasks; want at most %d", lists, waits, most)
				}
			})
		})
	}
}

// A run without a task, or whose tasks are deleted while WaitRun waits, is NOT_FOUND, and one
// without a name no run. The end of ctx ends the wait, and Close does not.
func TestWaitRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", RunId: "r"})
		for run, want := range map[producer.Run]codes.Code{
			{ID: "typo"}:                   codes.NotFound,
			{ID: "r", WorkspaceID: "typo"}: codes.NotFound,
			{}:                             codes.InvalidArgument,
			{ID: "\xff"}:                   codes.InvalidArgument,
			{ID: "r", WorkspaceID: "\xff"}: codes.InvalidArgument,
		} {
			counts, err := p.WaitRun(t.Context(), run)
			if status.Code(err) != want || counts != (producer.RunCounts{}) {
				t.Errorf("WaitRun for %q = %v, %v; want no counts and %v", run, counts, err, want)
			}
			if field, _ := detail.Field(status.Convert(err)); want == codes.InvalidArgument && field == "" {
				t.Errorf("WaitRun for %q = %v, which names no field", run, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if counts, err := p.WaitRun(ctx, producer.Run{ID: "r"}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("WaitRun = %v, %v; want DEADLINE_EXCEEDED", counts, err)
		}
		if counts, err := p.WaitRun(ctx, producer.Run{ID: "r"}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("WaitRun after its deadline = %v, %v; want DEADLINE_EXCEEDED", counts, err)
		}
		_ = p.Close()
		over := remove(t, c, id, time.Hour)
		if counts, err := p.WaitRun(t.Context(), producer.Run{ID: "r"}); status.Code(err) != codes.NotFound {
			t.Errorf("WaitRun for tasks that are deleted = %v, %v; want NOT_FOUND", counts, err)
		}
		<-over
	})
}

// listing is a coordinator whose lists end in turn as its list says, the last of them again and
// again; nil is a page with one task that is FAILED, unless another state is set. It has no stream
// to wait for a task.
type listing struct {
	lessorv1.UnimplementedTaskServiceServer
	list   []error
	state  lessorv1.TaskState
	tokens []string
}

func (s *listing) ListTasks(_ context.Context, req *lessorv1.ListTasksRequest) (*lessorv1.ListTasksResponse, error) {
	s.tokens = append(s.tokens, req.GetPageToken())
	if err := s.list[min(len(s.tokens), len(s.list))-1]; err != nil {
		return nil, err
	}
	page := &lessorv1.ListTasksResponse{Tasks: []*lessorv1.Task{{TaskId: "t1", State: cmp.Or(s.state, lessorv1.TaskState_TASK_STATE_FAILED)}}}
	if len(s.tokens) < len(s.list) {
		page.NextPageToken = fmt.Sprint(len(s.tokens))
	}
	return page, nil
}

// X5: WaitRun repeats a list after whatever may be over soon, as Wait does, and goes on at the page
// at which it was. A credential that is refused, or a fault on the way, is repeated once after a
// call that was answered. Anything else is its error.
func TestWaitRunTriesAgain(t *testing.T) {
	t.Attr("rules", "X5")
	full, err := status.New(codes.ResourceExhausted,
		"full").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	quota, away := full.Err(), status.Error(codes.Unavailable, "away")
	expired, cut := status.Error(codes.Unauthenticated, "expired"), status.Error(codes.Internal, "RST_STREAM")
	for name, test := range map[string]struct {
		list   []error
		state  lessorv1.TaskState
		want   codes.Code
		tokens []string
		least  time.Duration // that it takes
	}{
		"pages":                 {list: []error{nil, nil}, tokens: []string{"", "1"}},
		"away":                  {list: []error{away, away, nil, away, nil}, tokens: []string{"", "", "", "3", "3"}, least: 50 * time.Millisecond},
		"quota of calls":        {list: append(slices.Repeat([]error{quota}, 20), nil), tokens: make([]string, 21), least: 20 * time.Minute},
		"credential has ended":  {list: []error{nil, expired, nil}, tokens: []string{"", "1", "1"}},
		"refused again":         {list: []error{nil, expired, expired, nil}, want: codes.Unauthenticated, tokens: []string{"", "1", "1"}},
		"credential is refused": {list: []error{expired, nil}, want: codes.Unauthenticated, tokens: []string{""}},
		"cut":                   {list: []error{nil, cut, nil}, tokens: []string{"", "1", "1"}},
		"no wait is told":       {list: []error{status.Error(codes.ResourceExhausted, "never"), nil}, want: codes.ResourceExhausted, tokens: []string{""}},
		"a wait is refused":     {list: []error{nil}, state: lessorv1.TaskState_TASK_STATE_READY, want: codes.Unimplemented, tokens: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &listing{list: test.list, state: test.state}
			withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				begun := time.Now()
				counts, err := p.WaitRun(t.Context(), producer.Run{ID: "r"})
				if status.Code(err) != test.want || !slices.Equal(s.tokens, test.tokens) {
					t.Errorf("WaitRun = %v, %v after pages %q; want %v after %q", counts, err, s.tokens, test.want, test.tokens)
				}
				answered := len(slices.DeleteFunc(slices.Clone(test.list), func(err error) bool { return err != nil }))
				if err == nil && counts.Failed != answered {
					t.Errorf("WaitRun counts %v, want %d FAILED", counts, answered)
				}
				if took := time.Since(begun); took < test.least {
					t.Errorf("WaitRun took %v, want at least %v", took, test.least)
				}
			})
		})
	}
}

// While the coordinator is away, the error at the end of ctx says what was wrong.
func TestWaitRunWhileAway(t *testing.T) {
	s := &listing{list: []error{status.Error(codes.Unavailable, "the disk is full")}}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := p.WaitRun(ctx, producer.Run{ID: "r"})
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("error = %v, want DEADLINE_EXCEEDED and what the last try said", err)
		}
		if n := len(s.tokens); n < 3600/5 || n > 3600*2/5+10 {
			t.Errorf("%d lists in an hour, want one every 2.5 to 5s", n)
		}
	})
}
