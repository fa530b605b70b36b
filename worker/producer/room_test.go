package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// More Waits than a connection may have calls leave room for a worker and a Submit on it, and all of them return soon after their tasks have ended.
func TestManyWaitsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1100
		c := workertest.Start(t)
		p := producer.New(c.Conn())
		defer func() { _ = p.Close() }()
		began := time.Now() // a connection without room has some again after an hour, when the coordinator replaces it
		var waits sync.WaitGroup
		for range n {
			id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
			waits.Go(func() {
				if task, err := p.Wait(t.Context(), id); err != nil || task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
					t.Errorf("Wait = %v, %v; want a completed task", task, err)
				}
			})
		}
		time.Sleep(time.Second)
		w := c.Worker("q", worker.Config{Concurrency: 100})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		c.Run(w)
		c.Do(&lessorv1.TaskSpec{Queue: "q"})
		waits.Wait()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the Waits returned after %v, want within 5s, 1s of which without a worker", took)
		}
	})
}

// crowd is a coordinator that counts the calls under way. The watches of its tasks do not end unless the task has; get answers a GetTask.
type crowd struct {
	lessorv1.UnimplementedTaskServiceServer
	get func(id string, nth int) (lessorv1.TaskState, error)

	mu                              sync.Mutex
	watches, polls                  int // under way
	mostWatches, mostPolls, allGets int
	ended                           map[string]chan struct{}
}

func (c *crowd) task(id string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended = make(map[string]chan struct{})
	}
	if c.ended[id] == nil {
		c.ended[id] = make(chan struct{})
	}
	return c.ended[id]
}

func (c *crowd) count(n, most *int) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
	*most = max(*most, *n)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*n--
	}
}

// tally returns the most calls at once, how many watches are open, and how many GetTasks there were.
func (c *crowd) tally() (mostWatches, mostPolls, watches, gets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mostWatches, c.mostPolls, c.watches, c.allGets
}

func (c *crowd) WatchTask(req *lessorv1.WatchTaskRequest, events grpc.ServerStreamingServer[lessorv1.WatchTaskResponse]) error {
	defer c.count(&c.watches, &c.mostWatches)()
	select {
	case <-c.task(req.GetTaskId()):
		return nil
	case <-events.Context().Done():
		return events.Context().Err()
	}
}

func (c *crowd) GetTask(_ context.Context, req *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	defer c.count(&c.polls, &c.mostPolls)()
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	c.allGets++
	nth := c.allGets
	c.mu.Unlock()
	if c.get != nil {
		state, err := c.get(req.GetTaskId(), nth)
		return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{State: state}}, err
	}
	state := lessorv1.TaskState_TASK_STATE_RUNNING
	select {
	case <-c.task(req.GetTaskId()):
		state = lessorv1.TaskState_TASK_STATE_COMPLETED
	default:
	}
	return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{State: state}}, nil
}

// occupy starts Waits for n tasks, and returns when they watch or ask. stop ends them.
func occupy(t *testing.T, n int, clients ...*producer.Client) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	for i := range n {
		waits.Go(func() {
			if _, err := clients[i%len(clients)].Wait(ctx, fmt.Sprint("long", i)); err != nil && ctx.Err() == nil {
				t.Errorf("Wait = %v", err)
			}
		})
	}
	synctest.Wait()
	return func() {
		cancel()
		waits.Wait()
		time.Sleep(time.Second) // until the coordinator has noticed
	}
}

// The Waits on one connection, of all its clients, have a bounded number of calls under way, and ask at a bounded rate. When the last has returned, nothing
// of them is left.
func TestWaitsShareTheirConnection(t *testing.T) {
	s := &crowd{}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		a, b := producer.New(conn), producer.New(conn)
		defer func() { _ = a.Close() }()
		defer func() { _ = b.Close() }()
		stop := occupy(t, 1800, a, b)
		time.Sleep(4 * time.Second)
		stop()
		watches, polls, _, gets := s.tally()
		if watches != producer.MaxWatches || polls > producer.MaxPolls {
			t.Errorf("%d watches and %d other calls at once, want %d and at most %d", watches, polls, producer.MaxWatches, producer.MaxPolls)
		}
		if gets < 4*500 || gets > 4*1100 {
			t.Errorf("asked %d times in 4s, want about a thousand times a second", gets)
		}
		if n := producer.Rooms(); n != 0 {
			t.Errorf("%d rooms are left", n)
		}
	})
}

// A Wait for which there is no room to watch learns of the end of its task within a second and a half, and watches as soon as there is room: then it asks no
// more.
func TestWaitWithoutAWatch(t *testing.T) {
	s := &crowd{}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		stop := occupy(t, producer.MaxWatches, p)
		defer stop()
		for _, id := range []string{"short", "freed"} {
			returned := make(chan error, 1)
			go func() { _, err := p.Wait(t.Context(), id); returned <- err }()
			time.Sleep(time.Hour)
			if id == "freed" { // a watch of another Wait ends
				close(s.task("long7"))
				time.Sleep(time.Minute)
				_, _, _, before := s.tally()
				time.Sleep(time.Minute)
				if _, _, watches, gets := s.tally(); gets != before || watches != producer.MaxWatches {
					t.Errorf("%d watches, and %d polls in a minute; want %d and none", watches, gets-before, producer.MaxWatches)
				}
			}
			began := time.Now()
			close(s.task(id))
			if err := <-returned; err != nil || time.Since(began) > 1600*time.Millisecond {
				t.Errorf("Wait for %s = %v after %v, want nil within 1.6s", id, err, time.Since(began))
			}
		}
	})
}

// What a Wait that asks does after an error is what one that watches does: an outage is waited for, and a credential may have been replaced after an answer.
func TestPollsTryAgain(t *testing.T) {
	away, expired := status.Error(codes.Unavailable, "away"), status.Error(codes.Unauthenticated, "expired")
	for name, test := range map[string]struct {
		answers []error
		want    codes.Code
	}{
		"outage":              {[]error{away, away, away, nil, away, nil}, codes.OK},
		"credential ended":    {[]error{nil, expired, nil}, codes.OK},
		"credential refused":  {[]error{expired, nil}, codes.Unauthenticated},
		"refused again":       {[]error{nil, expired, expired, nil}, codes.Unauthenticated},
		"deleted":             {[]error{nil, status.Error(codes.NotFound, "gone"), nil}, codes.NotFound},
		"a proxy cuts a poll": {[]error{nil, status.Error(codes.Internal, "RST_STREAM"), nil}, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			s := &crowd{get: func(_ string, nth int) (lessorv1.TaskState, error) {
				if nth >= len(test.answers) {
					return lessorv1.TaskState_TASK_STATE_COMPLETED, nil
				}
				return lessorv1.TaskState_TASK_STATE_RUNNING, test.answers[nth-1]
			}}
			withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				defer occupy(t, producer.MaxWatches, p)()
				if _, err := p.Wait(t.Context(), "t1"); status.Code(err) != test.want {
					t.Errorf("Wait = %v, want %v", err, test.want)
				}
			})
		})
	}
}

// If the coordinator is away until ctx ends, a Wait without a watch says so.
func TestPollsWhileAway(t *testing.T) {
	s := &crowd{get: func(string, int) (lessorv1.TaskState, error) {
		return 0, status.Error(codes.Unavailable, "the disk is full")
	}}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		defer occupy(t, producer.MaxWatches, p)()
		for i := range 20 { // the end comes at any point of the wait
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second+time.Duration(i)*300*time.Millisecond)
			_, err := p.Wait(ctx, "t1")
			cancel()
			if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the disk is full") {
				t.Errorf("error = %v, want DEADLINE_EXCEEDED and what the last try said", err)
			}
		}
	})
}

// sliced is a connection that cannot be compared.
type sliced struct {
	grpc.ClientConnInterface
	_ []int
}

// A connection that cannot be compared has a room for each Wait.
func TestWaitOnAnUncomparableConnection(t *testing.T) {
	s := &crowd{get: func(string, int) (lessorv1.TaskState, error) { return 0, errors.New("no") }}
	withTaskService(t, s, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(sliced{ClientConnInterface: conn})
		defer func() { _ = p.Close() }()
		close(s.task("t1"))
		if _, err := p.Wait(t.Context(), "t1"); status.Code(err) != codes.Unknown {
			t.Errorf("Wait = %v, want the answer of GetTask", err)
		}
	})
}
