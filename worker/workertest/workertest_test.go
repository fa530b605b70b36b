package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// TestMain fails if a goroutine is still running after the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	running   = lessorv1.TaskState_TASK_STATE_RUNNING
	completed = lessorv1.TaskState_TASK_STATE_COMPLETED
	failed    = lessorv1.TaskState_TASK_STATE_FAILED
	cancelled = lessorv1.TaskState_TASK_STATE_CANCELLED
)

// serve runs a test with a coordinator and a worker that has the handler, in a bubble of fake time.
func serve(t *testing.T, h worker.Handler, test func(t *testing.T, c *workertest.Coordinator)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		w := c.Worker("q", worker.Config{Name: "w", Concurrency: 4})
		w.HandleDefault(h)
		c.Run(w)
		test(t, c)
	})
}

func spec() *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{Queue: "q", Type: "work", Payload: []byte("in")}
}

func wantState(t *testing.T, task *lessorv1.Task, want lessorv1.TaskState) {
	t.Helper()
	if task.GetState() != want {
		t.Errorf("state = %v, want %v; error %v; history %v", task.GetState(), want, task.GetError(), task.GetHistory())
	}
}

// A coordinator of workertest gives work to a worker even if the memory and the disk of the machine
// are full.
func TestFullMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		w := c.Worker("q", worker.Config{
			Metrics: func(map[string]float64) map[string]float64 {
				return map[string]float64{"mem_pct": 100, "disk_pct": 100}
			},
		})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		c.Run(w)
		time.Sleep(time.Minute) // until heartbeats have sent the gauges
		task := c.Submit(spec())
		synctest.Wait()
		wantState(t, c.Task(task), completed)
	})
}

// A task that is submitted is run by the worker and completed with the output of the handler.
func TestComplete(t *testing.T) {
	serve(t, func(_ context.Context, task *worker.Task) ([]byte, error) {
		return append(task.Payload, "-out"...), nil
	}, func(t *testing.T, c *workertest.Coordinator) {
		task := c.Do(spec())
		wantState(t, task, completed)
		if string(task.GetOutput()) != "in-out" || task.GetAttempt() != 1 {
			t.Errorf("task = %v, want output in-out in attempt 1", task)
		}
	})
}

// T3, T10, A2: the retry of a failed attempt gets the checkpoint of that attempt and a higher
// fencing token.
func TestRetryWithCheckpoint(t *testing.T) {
	t.Attr("rules", "T3 T10 A2")
	var tokens []uint64
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		tokens = append(tokens, task.FencingToken)
		if task.Attempt < 3 {
			if err := task.SaveCheckpoint(ctx, append(task.Checkpoint, 'x')); err != nil {
				return nil, err
			}
			return nil, errors.New("not yet")
		}
		return task.Checkpoint, nil
	}, func(t *testing.T, c *workertest.Coordinator) {
		task := c.Do(spec())
		wantState(t, task, completed)
		if string(task.GetOutput()) != "xx" || task.GetFailures() != 2 {
			t.Errorf("task = %v, want output xx after 2 failures", task)
		}
		if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
			t.Errorf("fencing tokens = %v, want three that rise", tokens)
		}
	})
}

// T4: a permanent failure is not retried, and keeps its category and message. A panic is a failure
// that is retried, with the stack.
func TestFailures(t *testing.T) {
	t.Attr("rules", "T4")
	serve(t, func(_ context.Context, task *worker.Task) ([]byte, error) {
		if task.Type == "panic" {
			panic("ouch")
		}
		return nil, worker.Permanent(worker.WithCategory(worker.Infrastructure, errors.New("no way")))
	}, func(t *testing.T, c *workertest.Coordinator) {
		task := c.Do(spec())
		wantState(t, task, failed)
		if task.GetAttempt() != 1 || task.GetError().GetCategory() != worker.Infrastructure || task.GetError().GetMessage() != "no way" {
			t.Errorf("error = %v after %d attempts, want INFRASTRUCTURE with %q after 1",
				task.GetError(), task.GetAttempt(), "no way")
		}
		s := spec()
		s.Type, s.RetryPolicy = "panic", &lessorv1.RetryPolicy{MaxAttempts: 2}
		task = c.Do(s)
		wantState(t, task, failed)
		if task.GetFailures() != 2 || task.GetError().GetMessage() != "panic: ouch" || task.GetError().GetStackTrace() == "" {
			t.Errorf("task = %v, want 2 failures, message %q and a stack", task, "panic: ouch")
		}
	})
}

// A3, K4: a task that runs much longer than its TTL keeps its lease by heartbeats, and can confirm
// it at any time.
func TestLongTask(t *testing.T) {
	t.Attr("rules", "A3 K4")
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		for range 10 {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			task.Progress(0.5, "half", "running")
			if err := task.Confirm(ctx, time.Minute); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}, func(t *testing.T, c *workertest.Coordinator) {
		task := c.Do(spec())
		wantState(t, task, completed)
		if task.GetAttempt() != 1 {
			t.Errorf("%d attempts, want 1", task.GetAttempt())
		}
	})
}

// T7, K6: a cancel ends the handler's context at once, with its reason. If the handler then
// returns, the task is CANCELLED.
func TestCancel(t *testing.T) {
	t.Attr("rules", "T7 K6")
	reasons := make(chan string, 1)
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		<-ctx.Done()
		reasons <- task.CancelReason()
		return nil, ctx.Err()
	}, func(t *testing.T, c *workertest.Coordinator) {
		id := c.Submit(spec())
		c.WaitState(id, running)
		begun := time.Now()
		c.Cancel(id, "changed my mind")
		if reason := <-reasons; reason != "changed my mind" || time.Since(begun) > 0 {
			t.Errorf("CancelReason = %q after %v, want %q at once", reason, time.Since(begun), "changed my mind")
		}
		wantState(t, c.Wait(id), cancelled)
	})
}

// T7, K2: a handler that still runs at the end of the grace after a cancel has lost its lease: its
// result is discarded, and the task is FAILED.
func TestCancelTimeout(t *testing.T) {
	t.Attr("rules", "T7 K2")
	var cause error
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		<-task.Lost()
		cause = context.Cause(ctx)
		return []byte("too late"), nil
	}, func(t *testing.T, c *workertest.Coordinator) {
		id := c.Submit(spec())
		c.WaitState(id, running)
		c.Cancel(id, "")
		task := c.Wait(id)
		wantState(t, task, failed)
		synctest.Wait()
		if !errors.Is(cause, worker.ErrCancelled) || len(task.GetOutput()) > 0 {
			t.Errorf("cause = %v, task = %v; want %v and no output", cause, task, worker.ErrCancelled)
		}
	})
}

// T6: at the attempt timeout the lease ends, and with it the handler's context.
func TestAttemptTimeout(t *testing.T) {
	t.Attr("rules", "T6")
	causes := make(chan error, 1)
	serve(t, func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}, func(t *testing.T, c *workertest.Coordinator) {
		s := spec()
		s.AttemptTimeout, s.RetryPolicy = durationpb.New(time.Minute), &lessorv1.RetryPolicy{MaxAttempts: 1}
		task := c.Do(s)
		wantState(t, task, failed)
		if cause := <-causes; !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("cause = %v, want %v", cause, worker.ErrLeaseLost)
		}
	})
}

// A9, W8: restarts of the coordinator do not end the lease of a running handler; its outcome is
// committed in the first attempt.
func TestRestart(t *testing.T) {
	t.Attr("rules", "A9 W8")
	begun := make(chan struct{}, 1)
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		begun <- struct{}{}
		select {
		case <-time.After(10 * time.Minute):
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, func(t *testing.T, c *workertest.Coordinator) {
		id := c.Submit(spec())
		<-begun
		for range 3 {
			time.Sleep(time.Minute)
			c.Restart()
		}
		task := c.Wait(id)
		wantState(t, task, completed)
		if task.GetAttempt() != 1 {
			t.Errorf("%d attempts, want 1; history %v", task.GetAttempt(), task.GetHistory())
		}
	})
}

// A9, K5: restarts of the coordinator while many tasks run cost none of them an attempt: a report
// without a verdict is sent again on the next stream.
func TestRestartsUnderLoad(t *testing.T) {
	t.Attr("rules", "A9 K5")
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		select {
		case <-time.After(time.Duration(task.Payload[0]) * 100 * time.Millisecond):
			return task.Payload, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}, func(t *testing.T, c *workertest.Coordinator) {
		var ids []string
		for i := range 200 {
			s := spec()
			s.Payload = []byte{byte(i)}
			ids = append(ids, c.Submit(s))
		}
		for range 20 {
			time.Sleep(13 * time.Second)
			c.Restart()
		}
		for _, id := range ids {
			task := c.Wait(id)
			wantState(t, task, completed)
			if task.GetAttempt() != 1 || task.GetLosses() != 0 {
				t.Errorf("%d attempts and %d losses, want 1 and 0; history %v",
					task.GetAttempt(), task.GetLosses(), task.GetHistory())
			}
		}
	})
}

// A9: a coordinator that stops asks its workers to wait for a second. Those with leases that are
// nearly as short do not wait so long, so that a restart costs no task its lease.
func TestRestartUnderShortLeases(t *testing.T) {
	t.Attr("rules", "A9")
	const ttl, tasks = 2 * time.Second, 300
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		w := c.Worker("q", worker.Config{Name: "w", Concurrency: 50, Logger: slog.New(slog.DiscardHandler)})
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			select {
			case <-time.After(time.Duration(task.Payload[0]) * 10 * time.Millisecond):
				return task.Payload, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
		c.Run(w)
		var ids []string
		for i := range tasks {
			s := spec()
			s.Payload, s.HeartbeatTimeout, s.HeartbeatInterval = []byte{byte(i)}, durationpb.New(ttl), durationpb.New(ttl/2)
			ids = append(ids, c.Submit(s))
		}
		for i := range 3 {
			time.Sleep(ttl + time.Duration(i)*100*time.Millisecond)
			c.Restart()
		}
		for _, id := range ids {
			task := c.Wait(id)
			wantState(t, task, completed)
			if task.GetLosses() != 0 {
				t.Errorf("%d losses, want none; history %v", task.GetLosses(), task.GetHistory())
			}
		}
	})
}

// A9, K5, W8: while the coordinator is away for half a TTL no handler is stopped. Outcomes of that
// time are committed when it is back, each in the first attempt.
func TestRollingRestart(t *testing.T) {
	t.Attr("rules", "A9 K5 W8")
	const away, ttl = 45 * time.Second, 90 * time.Second
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		w := c.Worker("q", worker.Config{Name: "w", Concurrency: 100})
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			select {
			case <-time.After(time.Duration(task.Payload[0]) * time.Second):
			case <-ctx.Done():
				t.Errorf("task %s was stopped with %v, want it to finish", task.ID, context.Cause(ctx))
			}
			return task.Payload, nil
		})
		c.Run(w)
		ids := make([]string, 2*ttl/time.Second)
		for i := range ids {
			s := spec()
			s.Payload = []byte{byte(i)}
			ids[i] = c.Submit(s)
		}
		for range 2 {
			// The stop must not be at a full second. Handlers end then and other tasks are granted;
			// a grant that is not acknowledged when the connection breaks is taken back (W5) if the
			// worker needs more than five seconds to come back.
			time.Sleep(ttl/3 + 300*time.Millisecond)
			c.RestartAfter(away)
		}
		for _, id := range ids {
			task := c.Wait(id)
			wantState(t, task, completed)
			if task.GetAttempt() != 1 || task.GetLosses() != 0 {
				t.Errorf("%d attempts and %d losses, want 1 and 0; history %v",
					task.GetAttempt(), task.GetLosses(), task.GetHistory())
			}
		}
	})
}

// A8, A9: while the coordinator is away for longer than leases live, handlers are stopped by the
// worker's own clock. One that finishes all the same is committed in its first attempt when the
// coordinator is back, where its lease still lives.
func TestLongOutage(t *testing.T) {
	t.Attr("rules", "A8 A9")
	causes := make(chan error, 10)
	serve(t, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		time.Sleep(3 * time.Minute)
		causes <- context.Cause(ctx)
		return task.Payload, nil
	}, func(t *testing.T, c *workertest.Coordinator) {
		id := c.Submit(spec())
		c.WaitState(id, running)
		c.RestartAfter(5 * time.Minute)
		task := c.Wait(id)
		wantState(t, task, completed)
		if cause := <-causes; !errors.Is(cause, worker.ErrLeaseLost) || task.GetAttempt() != 1 || task.GetLosses() != 0 {
			t.Errorf("the handler was stopped with %v; %d attempts and %d losses, want %v, 1 and 0",
				cause, task.GetAttempt(), task.GetLosses(), worker.ErrLeaseLost)
		}
	})
}

// brittleConn is a connection to the coordinator that a test can cut.
type brittleConn struct {
	grpc.ClientConnInterface
	mu     sync.Mutex // guards the rest
	broken bool
	cut    context.CancelFunc
}

func (b *brittleConn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return nil, status.Error(codes.Unavailable, "the connection is cut")
	}
	ctx, b.cut = context.WithCancel(ctx)
	return b.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// outage cuts the connection for a time.
func (b *brittleConn) outage(span time.Duration) {
	b.set(true)
	b.cut()
	time.Sleep(span)
	b.set(false)
}

func (b *brittleConn) set(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

// T5: a task that kills each worker process at once, before anything more is sent, uses up its
// losses and is quarantined. The first death may be one of which the coordinator had heard nothing.
func TestTaskThatKillsItsWorkersAtOnce(t *testing.T) {
	t.Attr("rules", "T5")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		s := spec()
		s.RetryPolicy = &lessorv1.RetryPolicy{MaxLosses: 2}
		id := c.Submit(s)
		ctx, stop := context.WithCancel(t.Context())
		var processes sync.WaitGroup
		deaths := 0
		processes.Go(func() {
			for ctx.Err() == nil {
				conn := &brittleConn{ClientConnInterface: c.Conn()}
				w, err := worker.New(conn, []string{"q"}, worker.Config{Name: "w", Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Error(err)
					return
				}
				w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) {
					deaths++
					conn.set(true)
					conn.cut()
					w.Drain(0)
					return nil, nil
				})
				_ = w.Run(ctx) // what it could not report
			}
		})
		task := c.Wait(id)
		stop()
		processes.Wait()
		wantState(t, task, failed)
		if task.GetReason() != lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT || !task.GetQuarantined() || task.GetLosses() != 2 {
			t.Errorf("reason %v, quarantined %v, %d losses; want HEARTBEAT_TIMEOUT, true and 2",
				task.GetReason(), task.GetQuarantined(), task.GetLosses())
		}
		if deaths > 3 {
			t.Errorf("%d workers died, want at most one more than the 2 losses", deaths)
		}
	})
}

// V15: a handler finishes while its worker has no connection, after its lease has ended. The
// coordinator refuses the result and keeps it, so that an operator can adopt it.
func TestLateResultCanBeAdopted(t *testing.T) {
	t.Attr("rules", "V15")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		conn := &brittleConn{ClientConnInterface: c.Conn()}
		verdicts := make(chan *lessorv1.ReportVerdict, 10)
		w, err := worker.New(conn, []string{"q"}, worker.Config{
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Hooks:  worker.Hooks{OnVerdict: func(_ *worker.Task, v *lessorv1.ReportVerdict) { verdicts <- v }},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) {
			time.Sleep(3 * time.Minute)
			return []byte("hours of work"), nil
		})
		c.Run(w)
		s := spec()
		s.RetryPolicy = &lessorv1.RetryPolicy{MaxLosses: 1} // no other attempt
		id := c.Submit(s)
		c.WaitState(id, running)
		conn.outage(5 * time.Minute)
		time.Sleep(time.Minute) // until the worker has connected again
		if len(verdicts) != 1 {
			t.Fatalf("%d verdicts, want one on the late result", len(verdicts))
		}
		if v := <-verdicts; v.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED {
			t.Errorf("verdict = %v, want CANCELLED, LEASE_EXPIRED", v)
		}
		wantState(t, c.Task(id), failed)
		adopted, err := lessorv1.NewTaskServiceClient(c.Conn()).AdoptResult(t.Context(), &lessorv1.AdoptResultRequest{TaskId: id})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, adopted.GetTask(), completed)
		if got := c.Task(id); string(got.GetOutput()) != "hours of work" {
			t.Errorf("task = %v, want the late result as its output", got)
		}
	})
}

// W10: a worker that is drained releases a task that it cannot finish. Another worker gets it, and
// neither a failure nor a loss is counted.
func TestDrainHandsOver(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		begun := make(chan string, 2)
		newWorker := func(name string, wait time.Duration) *worker.Worker {
			w := c.Worker("q", worker.Config{Name: name, DrainTimeout: time.Second})
			w.Handle("work", func(ctx context.Context, _ *worker.Task) ([]byte, error) {
				begun <- name
				select {
				case <-time.After(wait):
					return []byte(name), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			return w
		}
		stop := c.Run(newWorker("slow", time.Hour))
		id := c.Submit(spec())
		<-begun
		c.Run(newWorker("fast", time.Minute))
		stop()
		task := c.Wait(id)
		wantState(t, task, completed)
		if string(task.GetOutput()) != "fast" || task.GetFailures() != 0 || task.GetLosses() != 0 {
			t.Errorf("task = %v, want output fast without failures and losses", task)
		}
	})
}

// Of many short tasks over one stream, each is started once and committed once.
func TestManyTasks(t *testing.T) {
	const tasks = 1000
	var starts [tasks]int
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		client := lessorv1.NewTaskServiceClient(c.Conn())
		for batch := range tasks / 1000 {
			req := &lessorv1.BatchSubmitTasksRequest{}
			for i := range 1000 {
				n := batch*1000 + i
				req.Tasks = append(req.Tasks,
					&lessorv1.TaskSpec{Queue: "q", Type: "work", RunId: "r", Payload: []byte{byte(n), byte(n >> 8)}})
			}
			if _, err := client.BatchSubmitTasks(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		verdicts := make(chan *lessorv1.ReportVerdict, tasks)
		w := c.Worker("q", worker.Config{Concurrency: 100, Hooks: worker.Hooks{
			OnVerdict: func(_ *worker.Task, v *lessorv1.ReportVerdict) { verdicts <- v },
		}})
		lock := make(chan struct{}, 1) // guards starts
		w.Handle("work", func(_ context.Context, task *worker.Task) ([]byte, error) {
			lock <- struct{}{}
			starts[int(task.Payload[0])+int(task.Payload[1])<<8]++
			<-lock
			return nil, nil
		})
		c.Run(w)
		for range tasks {
			if v := <-verdicts; v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED || v.GetReplayed() {
				t.Fatalf("verdict = %v, want COMMITTED and not replayed", v)
			}
		}
	})
	for n, times := range starts {
		if times != 1 {
			t.Fatalf("task %d was started %d times, want once", n, times)
		}
	}
}

// Wait and WaitState go on waiting for a task while the coordinator restarts.
func TestWaitOverRestart(t *testing.T) {
	serve(t, func(context.Context, *worker.Task) ([]byte, error) {
		time.Sleep(10 * time.Second)
		return nil, nil
	}, func(t *testing.T, c *workertest.Coordinator) {
		restarted := make(chan struct{})
		restart := func() { defer close(restarted); time.Sleep(time.Second); c.Restart() }
		go restart()
		id := c.Submit(spec())
		c.WaitState(id, completed)
		<-restarted
		restarted = make(chan struct{})
		go restart()
		wantState(t, c.Do(spec()), completed)
		<-restarted
	})
}

// errorsOf is a TB that counts its errors instead of failing the test.
type errorsOf struct {
	workertest.TB
	errors int
}

func (tb *errorsOf) Errorf(string, ...any) { tb.errors++ }

// A worker that was drained over the admin service is no failure of the test, because it has left
// nothing behind. One that is stuck in a handler is.
func TestDrainedWorkerIsNoFailure(t *testing.T) {
	for name, stuck := range map[string]bool{"handler returns": false, "handler is stuck": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &errorsOf{TB: t}
				c := workertest.Start(tb)
				release := make(chan struct{})
				w := c.Worker("q", worker.Config{Name: "w"})
				w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { <-release; return nil, nil })
				stop := c.Run(w)
				c.WaitState(c.Submit(spec()), running)
				if !stuck {
					close(release)
				}
				_, err := lessorv1.NewAdminServiceClient(c.Conn()).DrainWorker(t.Context(),
					&lessorv1.DrainWorkerRequest{WorkerId: "w"})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				stop()
				if failed := tb.errors > 0; failed != stuck {
					t.Errorf("the test got %d errors, want at least one: %v", tb.errors, stuck)
				}
				if stuck {
					close(release)
				}
			})
		})
	}
}

// recorder is a TB that records its failures instead of failing the test.
type recorder struct {
	*testing.T
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// If a worker cannot run, Wait and WaitState fail the test with the reason, instead of waiting for
// ever.
func TestWaitForAWorkerThatFails(t *testing.T) {
	for name, wait := range map[string]func(c *workertest.Coordinator, id string){
		"Wait":      func(c *workertest.Coordinator, id string) { c.Wait(id) },
		"WaitState": func(c *workertest.Coordinator, id string) { c.WaitState(id, running) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &recorder{T: t}
				c := workertest.Start(tb)
				stop := c.Run(c.Worker("q", worker.Config{}))
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					wait(c, c.Submit(spec()))
				}()
				synctest.Wait()
				select {
				case <-ended:
				default:
					t.Fatal("the call still waits for the task, want it to fail because the worker has ended")
				}
				stop()
				if len(tb.failures) != 2 || !strings.Contains(tb.failures[0], "no handler was registered") {
					t.Errorf("failures = %q, want one of the call that waited and one of the worker", tb.failures)
				}
			})
		})
	}
}

// hurried is a recorder whose test ends soon. Its Fatalf ends the goroutine, as that of testing.T
// does.
type hurried struct {
	recorder
	deadline time.Time
}

func (h *hurried) Deadline() (time.Time, bool) { return h.deadline, true }

// A call that waits for a task that no worker takes does not wait until go test ends everything: it
// fails before, and says why.
func TestWaitSaysWhyBeforeTheDeadlineOfTheTest(t *testing.T) {
	for name, wait := range map[string]func(*workertest.Coordinator, string){
		"Wait":      func(c *workertest.Coordinator, id string) { c.Wait(id) },
		"WaitState": func(c *workertest.Coordinator, id string) { c.WaitState(id, running) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &hurried{recorder: recorder{T: t}, deadline: time.Now().Add(10 * time.Minute)}
				c := workertest.Start(tb)
				// the coordinator would then end the call first, without a reason
				if at, ok := c.WaitContext().Deadline(); ok {
					t.Errorf("calls that wait have the deadline %v", at)
				}
				w := c.Worker("q", worker.Config{})
				w.Handle("work", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
				c.Run(w)
				id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "other"})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					wait(c, id)
				}()
				<-ended
				if left := time.Until(tb.deadline); left != 5*time.Second {
					t.Errorf("the call ended %v before the deadline, want 5s", left)
				}
				for _, want := range []string{"the time of the test is almost over", "READY", `no worker that asks for work from queue "q" handles type "other"`} {
					if !strings.Contains(fmt.Sprint(tb.failures), want) {
						t.Errorf("%q does not contain %q", fmt.Sprint(tb.failures), want)
					}
				}
			})
		})
	}
}

// WaitState of a state that the task did not come to says in which state it has ended.
func TestWaitStateSaysHowTheTaskEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &recorder{T: t}
		c := workertest.Start(tb)
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.WaitState(id, lessorv1.TaskState_TASK_STATE_FAILED)
		}()
		<-ended
		if got := fmt.Sprint(tb.failures); !strings.Contains(got, "did not come to TASK_STATE_FAILED: it is TASK_STATE_COMPLETED") {
			t.Errorf("failures = %s, want one that says that the task is COMPLETED", got)
		}
	})
}

// In a bubble a test has no deadline. There, a call that waits for a task that no worker takes
// fails after a long fake time, and says why.
func TestWaitSaysWhyInABubble(t *testing.T) {
	for name, wait := range map[string]func(*workertest.Coordinator, string){
		"Wait":      func(c *workertest.Coordinator, id string) { c.Wait(id) },
		"WaitState": func(c *workertest.Coordinator, id string) { c.WaitState(id, running) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb := &recorder{T: t}
				c := workertest.Start(tb)
				if was := c.ShortenWaitLimit(time.Hour); was != workertest.WaitLimit {
					t.Errorf("calls wait for at most %v, want %v", was, workertest.WaitLimit)
				}
				w := c.Worker("q", worker.Config{})
				w.Handle("work", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
				c.Run(w)
				id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "other"})
				began, ended := time.Now(), make(chan struct{})
				go func() {
					defer close(ended)
					wait(c, id)
				}()
				<-ended
				if waited := time.Since(began); waited != time.Hour {
					t.Errorf("the call ended after %v, want 1h", waited)
				}
				for _, want := range []string{"waited for very long", "READY", `no worker that asks for work from queue "q" handles type "other"`} {
					if !strings.Contains(fmt.Sprint(tb.failures), want) {
						t.Errorf("%q does not contain %q", fmt.Sprint(tb.failures), want)
					}
				}
			})
		})
	}
}

// A TB that has only the methods of TB is seen to be in a bubble as well, where WaitLimit applies,
// and where handlers have as long as in production to end when their worker stops. Outside of one,
// there is no WaitLimit.
func TestBubbleOfAnotherTB(t *testing.T) {
	type other struct{ workertest.TB }
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(other{t})
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			select {
			case <-time.After(10 * time.Second):
				return nil, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		})
		stop := c.Run(w)
		id := c.Submit(spec())
		c.WaitState(id, running)
		stop()
		wantState(t, c.Task(id), completed)
		if limit := c.ShortenWaitLimit(0); limit != workertest.WaitLimit {
			t.Errorf("calls wait for at most %v, want %v", limit, workertest.WaitLimit)
		}
	})
	if limit := workertest.Start(other{t}).ShortenWaitLimit(0); limit != 0 {
		t.Errorf("outside of a bubble, calls wait for at most %v, want no limit", limit)
	}
}

// ending is a recorder whose test ends when end is called.
type ending struct {
	recorder
	cleanups []func()
}

func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *ending) end() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}

// Restart after the end of the test says so, instead of waiting for ever. While the test ends, it
// does no harm.
func TestRestartAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &ending{recorder: recorder{T: t}}
		c := workertest.Start(tb)
		go c.Restart()
		tb.end()
		synctest.Wait()
		tb.failures = nil
		go c.Restart()
		synctest.Wait()
		if len(tb.failures) != 1 || !strings.Contains(tb.failures[0], "after the end of the test") {
			t.Errorf("failures = %q, want one that says that the test has ended", tb.failures)
		}
	})
}
