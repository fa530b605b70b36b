package workertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// A handler sees what was submitted, how often the task was tried, and which attempt is the last:
// the one whose failure makes the task FAILED. A retry by a person begins anew.
func TestHandlerSeesItsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		submitted := time.Now()
		var seen []string
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(_ context.Context, task *worker.Task) ([]byte, error) {
			seen = append(seen, fmt.Sprintf("round %d attempt %d: %d of %d failures, %d of %d losses, last %v",
				task.Round, task.Attempt, task.Failures, task.MaxAttempts, task.Losses, task.MaxLosses, task.LastAttempt()))
			if !task.SubmittedAt.Equal(submitted) || task.Priority != 7 || task.IdempotencyKey != "key" || task.FairnessKey != "fair" ||
				task.AttemptTimeout != time.Hour || task.RunID != "run" || task.RunSeq == 0 {
				t.Errorf("task = %+v, want what was submitted at %v", task, submitted)
			}
			return nil, errors.New("no")
		})
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{
			Queue: "q", Priority: 7, IdempotencyKey: "key", FairnessKey: "fair", RunId: "run",
			AttemptTimeout: durationpb.New(time.Hour),
			RetryPolicy:    &lessorv1.RetryPolicy{MaxAttempts: 2},
		})
		if state := c.Wait(id).GetState(); state != lessorv1.TaskState_TASK_STATE_FAILED {
			t.Errorf("state = %v, want FAILED", state)
		}
		if _, err := lessorv1.NewTaskServiceClient(c.Conn()).RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		c.Wait(id)
		want := []string{
			"round 1 attempt 1: 0 of 2 failures, 0 of 3 losses, last false", "round 1 attempt 2: 1 of 2 failures, 0 of 3 losses, last true",
			"round 2 attempt 3: 0 of 2 failures, 0 of 3 losses, last false", "round 2 attempt 4: 1 of 2 failures, 0 of 3 losses, last true",
		}
		if !slices.Equal(seen, want) {
			t.Errorf("the handler saw %q, want %q", seen, want)
		}
	})
}

// A coordinator that does not say how many attempts there are has no last one.
func TestUnknownLastAttempt(t *testing.T) {
	if (&worker.Task{Failures: 9}).LastAttempt() {
		t.Error("the attempt is the last of an unknown number")
	}
}

// After RetryAtOnce, a task whose attempts all fail is FAILED within milliseconds.
func TestRetryAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		c.RetryAtOnce("q")
		w := c.Worker("q", worker.Config{})
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, errors.New("no") })
		c.Run(w)
		began := time.Now()
		task := c.Do(&lessorv1.TaskSpec{Queue: "q"})
		if took := time.Since(began); task.GetState() != lessorv1.TaskState_TASK_STATE_FAILED || task.GetFailures() != 5 || took > time.Second {
			t.Errorf("state %v after %d failures and %v, want FAILED after 5 within 1s",
				task.GetState(), task.GetFailures(), took)
		}
	})
}

// After LoseLease the context of the handler ends, and what it returns is discarded; the next
// attempt has its own lease. A task that nobody holds has none to lose.
func TestLoseLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &recorder{T: t}
		c := workertest.Start(tb)
		w := c.Worker("q", worker.Config{})
		var cause error
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			if task.Attempt > 1 {
				return []byte("second"), nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return []byte("first"), nil
		})
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		failed := make(chan struct{})
		go func() { defer close(failed); c.LoseLease(id) }() // Fatalf ends this goroutine
		<-failed
		if len(tb.failures) != 1 || !strings.Contains(tb.failures[0], "no worker holds it") {
			t.Errorf("failures = %q, want one that no worker holds the task", tb.failures)
		}
		c.Run(w)
		c.WaitState(id, lessorv1.TaskState_TASK_STATE_RUNNING)
		c.LoseLease(id)
		task := c.Wait(id)
		if !errors.Is(cause, worker.ErrLeaseLost) {
			t.Errorf("the context of the first handler ended with %v, want %v", cause, worker.ErrLeaseLost)
		}
		if string(task.GetOutput()) != "second" || task.GetAttempt() != 2 {
			t.Errorf("the output is %q after %d attempts, want that of the second", task.GetOutput(), task.GetAttempt())
		}
	})
}

// Each ExpireLease is a loss: the worker's own clock ends the handler, the coordinator counts, and
// after max_losses the task is quarantined. The worker goes on.
func TestExpireLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		w := c.Worker("q", worker.Config{Concurrency: 1})
		running, lost := make(chan string, 1), 0
		w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
			if task.Type == "short" {
				return []byte("done"), nil
			}
			running <- task.ID
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), worker.ErrLeaseLost) {
				lost++
			}
			return nil, ctx.Err()
		})
		c.Run(w)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", RetryPolicy: &lessorv1.RetryPolicy{MaxLosses: 3}})
		for n := range uint32(3) {
			c.ExpireLease(<-running)
			if got := c.Task(id).GetLosses(); got != n+1 {
				t.Fatalf("%d losses after %d lost leases", got, n+1)
			}
		}
		task := c.Wait(id)
		x, err := lessorv1.NewTaskServiceClient(c.Conn()).ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: id})
		if err != nil || !task.GetQuarantined() || task.GetReason() != lessorv1.Reason_REASON_HEARTBEAT_TIMEOUT {
			t.Errorf("the task is %v (%v), want it quarantined", task, err)
		}
		if cause := x.GetLastLease().GetCause(); cause != lessorv1.Reason_REASON_LEASE_EXPIRED {
			t.Errorf("the last lease ended by %v, want LEASE_EXPIRED", cause)
		}
		if task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "short"}); string(task.GetOutput()) != "done" || lost != 3 {
			t.Errorf("the next task is %v, and the handler lost %d leases, want one that is done, and 3", task, lost)
		}
	})
}

// A lease that is not there, or that ends in another way, does not expire.
func TestExpireLeaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &recorder{T: t}
		c := workertest.Start(tb)
		w := c.Worker("q", worker.Config{})
		running := make(chan struct{})
		w.HandleDefault(func(ctx context.Context, _ *worker.Task) ([]byte, error) {
			close(running)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q", AttemptTimeout: durationpb.New(time.Second)})
		expire := func(want string) {
			done := make(chan struct{})
			go func() { defer close(done); c.ExpireLease(id) }() // Fatalf ends this goroutine
			<-done
			if n := len(tb.failures); n == 0 || !strings.Contains(tb.failures[n-1], want) {
				t.Errorf("failures = %q, want one that has %q", tb.failures, want)
			}
		}
		expire("no worker holds it")
		c.Run(w)
		<-running
		expire("it ended by REASON_DEADLINE_EXCEEDED")
	})
}

// A handler that waits for its context, and a test that ends meanwhile, take a second of real time
// and not the 30 of a worker. A test may set another time. In a bubble time costs nothing, so there
// a worker drains as it does in production.
func TestDrainTimeout(t *testing.T) {
	logged := func(tb workertest.TB, cfg worker.Config) string {
		var log bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c := workertest.Start(tb)
		w := c.Worker("q", cfg)
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
		stop := c.Run(w)
		c.Do(&lessorv1.TaskSpec{Queue: "q"})
		stop()
		return log.String()
	}
	if log := logged(t, worker.Config{}); !strings.Contains(log, "patience=1s") {
		t.Errorf("the log has %q, want a patience of 1s", log)
	}
	if log := logged(t, worker.Config{DrainTimeout: 7 * time.Second}); !strings.Contains(log, "patience=7s") {
		t.Errorf("the log has %q, want the patience of 7s that the test has set", log)
	}
	synctest.Test(t, func(t *testing.T) {
		if log := logged(t, worker.Config{}); !strings.Contains(log, "patience=30s") {
			t.Errorf("in a bubble the log has %q, want a patience of 30s", log)
		}
	})
}

// A handler that is called with a Task of its test's own panics at the first call that needs a
// worker, with a hint to this package.
func TestTaskOfNoWorker(t *testing.T) {
	for name, call := range map[string]func(*worker.Task){
		"Progress":       func(task *worker.Task) { task.Progress(0.5, "half", "") },
		"Emit":           func(task *worker.Task) { task.Emit(worker.Chunk{}) },
		"Output":         func(task *worker.Task) { task.Output("log") },
		"SaveCheckpoint": func(task *worker.Task) { _ = task.SaveCheckpoint(t.Context(), []byte("x")) },
		"Confirm":        func(task *worker.Task) { _ = task.Confirm(t.Context(), time.Second) },
		"AddArtifact":    func(task *worker.Task) { task.AddArtifact(worker.Artifact{ResourceID: "a"}) },
		"CancelReason":   func(task *worker.Task) { task.CancelReason() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "use package workertest") {
					t.Errorf("it panics with %q, want a hint to this package", text)
				}
			}()
			call(&worker.Task{})
		})
	}
}
