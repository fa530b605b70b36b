package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// A hook that calls runtime.Goexit does not make the worker hang. If OnStart does it, the attempt
// fails at once and the task is tried again; if OnVerdict does it, which ends the reader of the
// stream, the worker opens another stream. In both cases the next task is served, and the log gives
// a reason.
func TestGoexitInHooks(t *testing.T) {
	for name, hooksOf := range map[string]func(once func()) worker.Hooks{
		"OnStart": func(once func()) worker.Hooks { return worker.Hooks{OnStart: func(*worker.Task) { once() }} },
		"OnVerdict": func(once func()) worker.Hooks {
			return worker.Hooks{OnVerdict: func(*worker.Task, *lessorv1.ReportVerdict) { once() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := workertest.Start(t)
				var calls atomic.Int32
				once := func() {
					if calls.Add(1) == 1 {
						runtime.Goexit()
					}
				}
				log := &journal{}
				w := c.Worker("q", worker.Config{
					Concurrency: 1, Hooks: hooksOf(once),
					Logger: slog.New(slog.NewTextHandler(log, nil)),
				})
				w.Handle("work", echo)
				stop := c.Run(w)
				for i := range 2 {
					task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "work", Deadline: in(time.Minute)})
					if task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || task.GetLosses() != 0 {
						t.Errorf("task %d is %v with %d losses and error %v, want COMPLETED with none",
							i, task.GetState(), task.GetLosses(), task.GetError())
					}
				}
				stop()
				if calls.Load() < 2 {
					t.Errorf("the hook was called %d times, want once per task at least", calls.Load())
				}
				if strings.Contains(log.String(), "<nil>") {
					t.Errorf("the log has <nil> instead of a reason:\n%s", log)
				}
			})
		})
	}
}

// in returns the time d from now.
func in(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }

// OnEnd is called once for each OnStart, before OnVerdict, with the time that the handler took and
// what it returned: also if the handler has panicked or has lost its lease, or if OnStart or OnEnd
// itself ends the goroutine.
func TestOnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		var mu sync.Mutex
		var got []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf(format, args...))
		}
		w := c.Worker("q", worker.Config{Hooks: worker.Hooks{
			OnStart: func(task *worker.Task) {
				note("start")
				if task.Type == "start exits" {
					runtime.Goexit()
				}
			},
			OnEnd: func(task *worker.Task, took time.Duration, err error) {
				note("end %v %v", took, err)
				if task.Type == "end exits" {
					runtime.Goexit()
				}
			},
			OnVerdict: func(*worker.Task, *lessorv1.ReportVerdict) { note("verdict") },
		}})
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			time.Sleep(2 * time.Second)
			switch task.Type {
			case "panics":
				panic("no")
			case "fails":
				return nil, errors.New("broken")
			case "loses":
				<-ctx.Done()
				time.Sleep(3 * time.Second)
			}
			return nil, nil
		})
		stop := c.Run(w)
		for typ, want := range map[string]string{
			"completes":   "[start end 2s <nil> verdict]",
			"fails":       "[start end 2s broken verdict]",
			"panics":      "[start end 2s panic: no verdict]",
			"loses":       "[start end 13s <nil>]",
			"start exits": "[start end 0s handler called runtime.Goexit verdict]",
			"end exits":   "[start end 2s <nil> verdict]",
		} {
			spec := &lessorv1.TaskSpec{Queue: "q", Type: typ, RetryPolicy: &lessorv1.RetryPolicy{MaxAttempts: 1}}
			if typ == "loses" {
				spec.AttemptTimeout = durationpb.New(10 * time.Second)
			}
			state := c.Do(spec).GetState()
			if completes := strings.HasPrefix(want, "[start end 2s <nil>"); completes != (state == lessorv1.TaskState_TASK_STATE_COMPLETED) {
				t.Errorf("%s: the task is %v", typ, state)
			}
			time.Sleep(time.Minute)
			mu.Lock()
			if fmt.Sprint(got) != want {
				t.Errorf("%s: the hooks were called as %v, want %s", typ, got, want)
			}
			got = nil
			mu.Unlock()
		}
		stop()
	})
}

// OnHeartbeat is called for each heartbeat, also while the worker has no task; those of a drain say
// that the worker is not healthy.
func TestOnHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		var healthy, draining atomic.Int32
		w := c.Worker("q", worker.Config{DrainTimeout: time.Hour, Hooks: worker.Hooks{OnHeartbeat: func(h *lessorv1.WorkerHeartbeat) {
			if h.GetHealthy() {
				healthy.Add(1)
			} else {
				draining.Add(1)
			}
		}}})
		release := make(chan struct{})
		w.Handle("work", func(context.Context, *worker.Task) ([]byte, error) {
			<-release
			return nil, nil
		})
		c.Run(w)
		time.Sleep(5 * time.Minute)
		if idle := healthy.Load(); idle < 3 || draining.Load() != 0 {
			t.Errorf("an idle worker sent %d heartbeats in five minutes, and %d that say that it drains; want several, and none", idle, draining.Load())
		}
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "work"})
		time.Sleep(time.Second)
		w.Drain(time.Hour)
		before := healthy.Load()
		time.Sleep(time.Minute)
		if healthy.Load() != before || draining.Load() < 3 {
			t.Errorf("a worker that drains sent %d heartbeats that say that it does not, and %d that it does",
				healthy.Load()-before, draining.Load())
		}
		close(release)
		c.Wait(id)
	})
}

// StopCause says in OnEnd why the context of the handler has ended, even if the handler returns at
// that moment. It is nil if nothing has ended it.
func TestStopCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		ended := make(chan error, 1)
		w := c.Worker("q", worker.Config{Hooks: worker.Hooks{OnEnd: func(task *worker.Task, _ time.Duration, _ error) {
			if task.Attempt == 1 {
				ended <- task.StopCause()
			}
		}}})
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			if task.Type == "returns" || task.Attempt > 1 {
				return nil, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		stop := c.Run(w)
		for typ, test := range map[string]struct {
			do   func(id string)
			want error
		}{
			"returns":     {func(string) {}, nil},
			"loses":       {c.LoseLease, worker.ErrLeaseLost},
			"isCancelled": {func(id string) { c.Cancel(id, "test") }, worker.ErrCancelled},
		} {
			id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: typ})
			time.Sleep(time.Second)
			test.do(id)
			if got := <-ended; !errors.Is(got, test.want) {
				t.Errorf("%s: StopCause = %v, want %v", typ, got, test.want)
			}
			c.Wait(id)
		}
		c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "drains"})
		time.Sleep(time.Second)
		w.Drain(0)
		if got := <-ended; !errors.Is(got, worker.ErrDraining) {
			t.Errorf("StopCause = %v, want %v", got, worker.ErrDraining)
		}
		stop()
	})
}
