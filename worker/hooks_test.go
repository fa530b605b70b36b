package worker_test

import (
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// A hook that calls runtime.Goexit does not make the worker hang. If OnStart does it, the attempt fails at once and the task is tried again; if
// OnVerdict does it, which ends the reader of the stream, the worker opens another stream. In both cases the next task is served, and the log gives a
// reason.
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
				w := c.Worker("q", worker.Config{Concurrency: 1, Hooks: hooksOf(once), Logger: slog.New(slog.NewTextHandler(log, nil))})
				w.Handle("work", echo)
				stop := c.Run(w)
				for i := range 2 {
					task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "work", Deadline: in(time.Minute)})
					if task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || task.GetLosses() != 0 {
						t.Errorf("task %d is %v with %d losses and error %v, want COMPLETED with none", i, task.GetState(), task.GetLosses(), task.GetError())
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
