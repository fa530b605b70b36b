package producer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
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
		var later sync.WaitGroup
		defer later.Wait() // until the worker is one that the end of the test stops
		later.Go(func() {
			time.Sleep(time.Hour)
			c.Restart()
			time.Sleep(time.Hour)
			w := c.Worker("q", worker.Config{})
			w.Handle("echo", func(_ context.Context, t *worker.Task) ([]byte, error) { return t.Payload, nil })
			c.Run(w)
		})
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

// Several Waits for one task return a message each, so that their callers may change it.
func TestWaitsForOneTaskShareNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { time.Sleep(time.Hour); return []byte("out"), nil })
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() {
				task, err := p.Wait(t.Context(), id)
				if err != nil || string(task.GetOutput()) != "out" {
					t.Errorf("Wait = %v, %v; want the task with output out", task, err)
					return
				}
				task.Output[0] = byte(n) // the race detector sees it, too
			})
		}
		all.Wait()
	})
}

// A task that does not exist, or is deleted while Wait waits for it, is NOT_FOUND. The end of ctx
// ends the wait.
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

// streams is a coordinator whose AwaitTasks end in turn as its list says, and the last of them
// again and again.
type streams struct {
	lessorv1.UnimplementedTaskServiceServer
	list  []stream
	gets  []lessorv1.TaskState // what GetTask says, in turn
	calls int
}

// stream is what becomes of an AwaitTasks. With neither an end nor answers it goes on.
type stream struct {
	began   bool // it sends headers first
	end     error
	answers []*lessorv1.AwaitedTask // to the requests, in turn
}

func (s *streams) AwaitTasks(calls grpc.BidiStreamingServer[lessorv1.AwaitTasksRequest, lessorv1.AwaitTasksResponse]) error {
	s.calls++
	now := s.list[min(s.calls, len(s.list))-1]
	if now.began || len(now.answers) > 0 {
		if err := calls.SendHeader(nil); err != nil {
			return err
		}
	}
	for n := 0; now.end == nil || n == 0; n++ {
		req, err := calls.Recv()
		if err != nil {
			return err
		}
		if n < len(now.answers) {
			m := proto.CloneOf(now.answers[n])
			m.TaskId = req.GetAdd()[0]
			if err := calls.Send(&lessorv1.AwaitTasksResponse{Tasks: []*lessorv1.AwaitedTask{m}, Requests: uint64(n + 1)}); err != nil {
				return err
			}
		}
	}
	return now.end
}

func (s *streams) GetTask(context.Context, *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	state := s.gets[0]
	s.gets = s.gets[1:]
	return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{State: state}}, nil
}

// Wait tries again after whatever may be over soon: an outage, a quota that is used up, the end of
// a credential, a task that somebody has retried. Anything else is its error, and so is a
// credential that was refused at once. A task that is too large for the stream comes from GetTask.
func TestWaitTriesAgain(t *testing.T) {
	full, err := status.New(codes.ResourceExhausted,
		"full").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	fault, err := status.New(codes.Internal, "no").WithDetails(&errdetails.ErrorInfo{Reason: "INTERNAL"})
	if err != nil {
		t.Fatal(err)
	}
	const completed, ready = lessorv1.TaskState_TASK_STATE_COMPLETED, lessorv1.TaskState_TASK_STATE_READY
	done := &lessorv1.AwaitedTask{State: completed, Task: &lessorv1.Task{State: completed}}
	noRoom := &lessorv1.AwaitedTask{Error: &lessorv1.AwaitError{
		Status: int32(codes.ResourceExhausted),
		Code:   "E.QUOTA.WAITS", RetryAfter: durationpb.New(time.Minute),
	}}
	ended := stream{answers: []*lessorv1.AwaitedTask{done}}
	large := &lessorv1.AwaitedTask{State: completed}
	for name, test := range map[string]struct {
		list  []stream
		gets  []lessorv1.TaskState
		want  codes.Code
		calls int
		least time.Duration // that it takes
	}{
		"final at once":         {list: []stream{ended}, want: codes.OK, calls: 1},
		"outages":               {list: []stream{{end: status.Error(codes.Unavailable, "away")}, {began: true, end: status.Error(codes.Unavailable, "away")}, ended}, calls: 3, least: 50 * time.Millisecond},
		"quota of streams":      {list: append(slices.Repeat([]stream{{end: full.Err()}}, 20), ended), calls: 21, least: 20 * time.Minute},
		"quota of waits":        {list: []stream{{answers: append(slices.Repeat([]*lessorv1.AwaitedTask{noRoom}, 20), done)}}, calls: 1, least: 20 * time.Minute},
		"large":                 {list: []stream{{answers: []*lessorv1.AwaitedTask{large}}}, gets: []lessorv1.TaskState{completed}, calls: 1},
		"retried":               {list: []stream{{answers: []*lessorv1.AwaitedTask{large, large}}}, gets: []lessorv1.TaskState{ready, completed}, calls: 1},
		"credential has ended":  {list: []stream{{began: true, end: status.Error(codes.Unauthenticated, "expired")}, ended}, calls: 2},
		"credential is refused": {list: []stream{{end: status.Error(codes.Unauthenticated, "unknown")}, ended}, want: codes.Unauthenticated, calls: 1},
		"refused again": {
			list: []stream{
				{began: true, end: status.Error(codes.Unauthenticated, "expired")},
				{end: status.Error(codes.Unauthenticated, "expired")},
				ended,
			},
			want: codes.Unauthenticated, calls: 2,
		},
		"role is refused":  {list: []stream{{end: status.Error(codes.PermissionDenied, "no")}, ended}, want: codes.PermissionDenied, calls: 1},
		"no wait is told":  {list: []stream{{end: status.Error(codes.ResourceExhausted, "never")}, ended}, want: codes.ResourceExhausted, calls: 1},
		"a fault":          {list: []stream{{began: true, end: fault.Err()}, ended}, want: codes.Internal, calls: 1},
		"a proxy cuts it":  {list: []stream{{began: true, end: status.Error(codes.Internal, "RST_STREAM")}, {began: true, end: status.Error(codes.Canceled, "RST_STREAM")}, ended}, calls: 3},
		"no stream begins": {list: []stream{{end: status.Error(codes.Internal, "no")}, ended}, want: codes.Internal, calls: 1},
		"an old server":    {list: []stream{{end: status.Error(codes.Unimplemented, "no")}, ended}, want: codes.Unimplemented, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &streams{list: test.list, gets: test.gets}
			withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				begun := time.Now()
				task, err := p.Wait(t.Context(), "t1")
				if status.Code(err) != test.want || s.calls != test.calls {
					t.Errorf("Wait = %v, %v after %d streams; want %v after %d", task, err, s.calls, test.want, test.calls)
				}
				if err == nil && task.GetState() != completed {
					t.Errorf("state = %v, want %v", task.GetState(), completed)
				}
				if took := time.Since(begun); took < test.least {
					t.Errorf("Wait took %v, want at least %v", took, test.least)
				}
			})
		})
	}
}

// While the coordinator is away, the wait between two tries grows, however many wait, and the error
// at the end of ctx says what was wrong.
func TestWaitWhileAway(t *testing.T) {
	s := &streams{list: []stream{{end: status.Error(codes.Unavailable, "the disk is full")}}}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var waits sync.WaitGroup
		for i := range 10 {
			waits.Go(func() {
				_, err := p.Wait(ctx, fmt.Sprint("t", i))
				if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the disk is full") {
					t.Errorf("error = %v, want DEADLINE_EXCEEDED and what the last try said", err)
				}
			})
		}
		waits.Wait()
		if s.calls < 3600/5 || s.calls > 3600*2/5+10 {
			t.Errorf("%d streams in an hour, want one every 2.5 to 5s", s.calls)
		}
	})
}

// requests is a coordinator that passes on the requests of its only AwaitTasks, and sends what a
// test says.
type requests struct {
	lessorv1.UnimplementedTaskServiceServer
	got   chan *lessorv1.AwaitTasksRequest
	send  chan *lessorv1.AwaitTasksResponse
	calls int
}

// open makes the channels, which must belong to the bubble of the test.
func (s *requests) open() {
	s.got, s.send = make(chan *lessorv1.AwaitTasksRequest, 3000), make(chan *lessorv1.AwaitTasksResponse)
}

func (s *requests) AwaitTasks(calls grpc.BidiStreamingServer[lessorv1.AwaitTasksRequest, lessorv1.AwaitTasksResponse]) error {
	s.calls++
	go func() {
		for {
			req, err := calls.Recv()
			if err != nil {
				return
			}
			s.got <- req
		}
	}()
	for {
		select {
		case res := <-s.send:
			if err := calls.Send(res); err != nil {
				return err
			}
		case <-calls.Context().Done():
			return calls.Context().Err()
		}
	}
}

// end tells the end of a task, whose number of attempts tells the ends apart.
func (s *requests) end(id string, attempt uint32, requests uint64) {
	const failed = lessorv1.TaskState_TASK_STATE_FAILED
	m := &lessorv1.AwaitedTask{TaskId: id, State: failed, Task: &lessorv1.Task{TaskId: id, State: failed, Attempt: attempt}}
	s.send <- &lessorv1.AwaitTasksResponse{Tasks: []*lessorv1.AwaitedTask{m}, Requests: requests}
	synctest.Wait()
}

// Waits for one task share its answer. One that begins while an older answer is on its way does not
// get that: the task may have been retried since. What nobody waits for any more is forgotten, and
// the stream is kept.
func TestWaitsOfOneTask(t *testing.T) {
	s := &requests{}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		s.open()
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		wait := func(ctx context.Context) <-chan uint32 {
			attempt := make(chan uint32, 1)
			go func() {
				task, err := p.Wait(ctx, "t1")
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				attempt <- task.GetAttempt()
			}()
			synctest.Wait()
			return attempt
		}
		ctx, leave := context.WithCancel(t.Context())
		left := wait(ctx)
		first, second := wait(t.Context()), wait(t.Context())
		for range 3 {
			if req := <-s.got; !slices.Equal(req.GetAdd(), []string{"t1"}) || len(req.GetForget()) != 0 {
				t.Errorf("request %v, want that t1 is added", req)
			}
		}
		leave()
		if synctest.Wait(); <-left != 0 || len(s.got) != 0 {
			t.Errorf("t1 is forgotten while others wait for it: %v", <-s.got)
		}
		s.end("t1", 1, 2)
		if <-first != 1 || len(second) != 0 {
			t.Error("the answer after the second request is not that of the first Wait alone")
		}
		s.end("t2", 1, 3)
		s.end("t1", 2, 3)
		if n := <-second; n != 2 {
			t.Errorf("the Wait that began later got the end of attempt %d, want 2", n)
		}
		ctx, leave = context.WithCancel(t.Context())
		last := wait(ctx)
		<-s.got
		leave()
		if req := <-s.got; <-last != 0 || !slices.Equal(req.GetForget(), []string{"t1"}) || len(req.GetAdd()) != 0 {
			t.Errorf("request %v, want that t1 is forgotten", req)
		}
		if s.calls != 1 {
			t.Errorf("%d streams, want one that is kept while nobody waits", s.calls)
		}
	})
}

// held is a connection on which no stream is opened before goOn is closed.
type held struct {
	grpc.ClientConnInterface
	goOn chan struct{}
}

func (c held) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	<-c.goOn
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// Waits that begin before a request is made share it, up to as many ids as a coordinator accepts.
func TestWaitsShareRequests(t *testing.T) {
	s := &requests{}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		s.open()
		goOn := make(chan struct{})
		p := producer.New(held{conn, goOn})
		defer func() { _ = p.Close() }()
		ctx, leave := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		for i := range 2500 {
			waits.Go(func() { _, _ = p.Wait(ctx, fmt.Sprint("t", i)) })
		}
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		added := map[string]bool{}
		var sizes []int
		for range len(s.got) {
			req := <-s.got
			sizes = append(sizes, len(req.GetAdd()))
			for _, id := range req.GetAdd() {
				added[id] = true
			}
		}
		if len(added) != 2500 || !slices.Equal(sizes, []int{1000, 1000, 500}) {
			t.Errorf("%d ids in requests of %v, want 2500 in requests of 1000, 1000 and 500", len(added), sizes)
		}
		leave()
		waits.Wait()
	})
}

// Close does not end a Wait, and the last Wait after it leaves nothing behind. A Wait may even
// begin after it.
func TestWaitAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		waits := make(chan error)
		wait := func() {
			id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
			go func() { _, err := p.Wait(t.Context(), id); waits <- err }()
		}
		wait()
		time.Sleep(time.Second)
		_ = p.Close()
		wait()
		time.Sleep(time.Second)
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		c.Run(w)
		for range 2 {
			if err := <-waits; err != nil {
				t.Error(err)
			}
		}
		wait()
		if err := <-waits; err != nil {
			t.Error(err)
		}
		_ = p.Close()
	})
}

// An id that no coordinator would accept is refused in this process, because it may end the stream
// of the others.
func TestWaitForABadID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		for id, want := range map[string]codes.Code{
			"": codes.InvalidArgument, "\xff": codes.InvalidArgument, "bad\nid": codes.InvalidArgument,
			strings.Repeat("x", 257): codes.InvalidArgument, strings.Repeat("x", 256): codes.NotFound,
		} {
			_, err := p.Wait(t.Context(), id)
			if status.Code(err) != want {
				t.Errorf("Wait for %q = %v, want %v", id, err, want)
			}
			if field, _ := detail.Field(status.Convert(err)); want == codes.InvalidArgument && id != "" && field != "task_id" {
				t.Errorf("Wait for %q = %v of the field %q, want task_id", id, err, field)
			}
		}
	})
}

// More Waits than a connection may have calls leave room for a worker and a Submit on it, and each
// returns at once when its task has ended.
func TestManyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		var waits sync.WaitGroup
		for range n {
			id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
			waits.Go(func() {
				task, err := p.Wait(t.Context(), id)
				if err != nil || task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
					t.Errorf("Wait = %v, %v; want a completed task", task, err)
				}
				if late := time.Since(task.GetFinishedAt().AsTime()); late > 10*time.Millisecond {
					t.Errorf("Wait returned %v after the end of its task", late)
				}
			})
		}
		time.Sleep(time.Second)
		w := c.Worker("q", worker.Config{Concurrency: 100})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		c.Run(w)
		c.Do(&lessorv1.TaskSpec{Queue: "q"})
		waits.Wait()
	})
}

// A large output comes, too.
func TestWaitForALargeOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(_ context.Context, t *worker.Task) ([]byte, error) { return t.Payload, nil })
		c.Run(w)
		payload := make([]byte, 700<<10)
		task, err := p.Wait(t.Context(), c.Submit(&lessorv1.TaskSpec{Queue: "q", Payload: payload}))
		if err != nil || len(task.GetOutput()) != len(payload) {
			t.Errorf("Wait = %d bytes, %v; want %d", len(task.GetOutput()), err, len(payload))
		}
	})
}
