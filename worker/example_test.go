package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// A whole worker program: connect, register a handler, run until a signal comes. The signal drains the worker: what runs
// may finish. A second one ends the program at once; its leases then run out.
func Example_program() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal is not caught
	conn, err := worker.Dial("127.0.0.1:7420")
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return
	}
	defer conn.Close()

	w, err := worker.New(conn, []string{"greetings"}, worker.Config{Concurrency: 8})
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return
	}
	w.Handle("shout", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return []byte(strings.ToUpper(string(t.Payload))), nil
	})
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
}

// A handler takes the payload and returns the output. In a test, workertest has a coordinator for it.
func ExampleWorker_Handle() {
	tb := newTB() // a test has its own
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("greetings", worker.Config{})
	w.Handle("shout", func(_ context.Context, t *worker.Task) ([]byte, error) {
		return []byte(strings.ToUpper(string(t.Payload))), nil
	})
	c.Run(w)

	task := c.Do(&lessorv1.TaskSpec{Queue: "greetings", Type: "shout", Payload: []byte("hello")})
	fmt.Println(task.GetState(), string(task.GetOutput()))
	// Output: TASK_STATE_COMPLETED HELLO
}

// The error says what kind of failure it was and whether another attempt makes sense; the policy decides the rest.
func Example_errors() {
	tb := newTB() // a test has its own
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("fetch", func(_ context.Context, t *worker.Task) ([]byte, error) {
		switch {
		case len(t.Payload) == 0: // no attempt will ever succeed
			return nil, worker.WithCategory(worker.DataQuality, errors.New("no URL given"))
		case t.Attempt == 1: // the other side told us when to come again
			return nil, worker.RetryAfter(time.Millisecond, errors.New("429 Too Many Requests"))
		case t.Attempt == 2: // not our fault, and not the task's
			return nil, worker.Release(0, "disk is full on this machine")
		case string(t.Payload) == "gone":
			return nil, worker.Permanent(errors.New("410 Gone"))
		}
		return []byte("page"), nil
	})
	c.Run(w)

	for _, url := range []string{"", "gone", "here"} {
		task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "fetch", Payload: []byte(url)})
		fmt.Printf("%q: %v after %d attempts and %d failures\n", url, task.GetState(), task.GetAttempt(), task.GetFailures())
	}
	// Output:
	// "": TASK_STATE_FAILED after 1 attempts and 1 failures
	// "gone": TASK_STATE_FAILED after 3 attempts and 2 failures
	// "here": TASK_STATE_COMPLETED after 3 attempts and 1 failures
}

// A checkpoint that was saved is there in the next attempt, on whatever machine that runs.
func ExampleTask_SaveCheckpoint() {
	tb := newTB() // a test has its own
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("import", func(ctx context.Context, t *worker.Task) ([]byte, error) {
		rows := len(t.Checkpoint)
		fmt.Println("attempt", t.Attempt, "begins at row", rows)
		for ; rows < 6; rows++ {
			if rows == 3 && t.Attempt == 1 {
				return nil, worker.RetryAfter(time.Millisecond, errors.New("database is away"))
			}
			t.Progress(float64(rows)/6, fmt.Sprintf("row %d", rows), "importing")
			if err := t.SaveCheckpoint(ctx, []byte(strings.Repeat("r", rows+1))); err != nil {
				return nil, err
			}
		}
		return fmt.Append(nil, rows), nil
	})
	c.Run(w)

	task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "import"})
	fmt.Printf("%v: %s rows\n", task.GetState(), task.GetOutput())
	// Output:
	// attempt 1 begins at row 0
	// attempt 2 begins at row 3
	// TASK_STATE_COMPLETED: 6 rows
}

// Right before an effect that must not happen twice, Confirm asks whether the attempt still holds its lease; the
// fencing token lets the other side refuse whoever comes late all the same.
func ExampleTask_Confirm() {
	tb := newTB() // a test has its own
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	pay := func(_ context.Context, token uint64, account string) error {
		fmt.Println("paid", account, "with a token:", token > 0)
		return nil
	}
	w.Handle("pay", func(ctx context.Context, t *worker.Task) ([]byte, error) {
		if err := t.Confirm(ctx, 10*time.Second); err != nil {
			return nil, err // lost, cancelled or unreachable: do not pay
		}
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return nil, pay(ctx, t.FencingToken, string(t.Payload))
	})
	c.Run(w)

	fmt.Println(c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "pay", Payload: []byte("alice")}).GetState())
	// Output:
	// paid alice with a token: true
	// TASK_STATE_COMPLETED
}

// The cause of a context's end tells a handler what it still may do.
func Example_cause() {
	tb := newTB() // a test has its own
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("wait", func(ctx context.Context, t *worker.Task) ([]byte, error) {
		<-ctx.Done()
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, worker.ErrLeaseLost): // somebody else may run already: touch nothing
		case errors.Is(cause, worker.ErrCancelled): // clean up within t.CancelGrace
			fmt.Println("cancelled:", t.CancelReason())
		case errors.Is(cause, worker.ErrDraining): // save what is worth saving; another worker goes on
		}
		return nil, ctx.Err()
	})
	c.Run(w)

	id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "wait"})
	c.WaitState(id, lessorv1.TaskState_TASK_STATE_RUNNING)
	c.Cancel(id, "not needed any more")
	task := c.Wait(id)
	fmt.Println(task.GetState(), task.GetError().GetCategory())
	// Output:
	// cancelled: not needed any more
	// TASK_STATE_CANCELLED ERROR_CATEGORY_CANCELLED
}

// Output is for people who watch; what a handler logs goes along.
func ExampleTask_Output() {
	tb := newTB() // a test has its own
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("build", func(_ context.Context, t *worker.Task) ([]byte, error) {
		fmt.Fprintln(t.Output("log"), "compiling", string(t.Payload))
		t.AddArtifact(worker.Artifact{ResourceID: "s3://builds/a.out", Type: "application/x-executable", Size: 4096})
		return nil, nil
	})
	c.Run(w)

	task := c.Do(&lessorv1.TaskSpec{Queue: "q", Type: "build", Payload: []byte("main.go")})
	fmt.Println(task.GetArtifacts()[0].GetResourceId())
	// Output: s3://builds/a.out
}
