package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// A whole worker program: it connects, registers a handler and runs until a signal comes. The
// signal drains the worker: tasks that run may finish. A second signal stops them, so that other
// workers get them at once. A third one ends the program; the coordinator then waits until its
// leases expire.
func Example_program() {
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
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, drain := context.WithCancel(context.Background())
	defer drain()
	go func() {
		<-signals
		drain()
		<-signals
		signal.Stop(signals)
		w.Drain(0)
	}()
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
}

// A handler takes the payload and returns the output. Package workertest provides a coordinator for
// tests of handlers.
func ExampleWorker_Handle() {
	tb := newTB() // in a test, pass t
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

// Payload and output are bytes; here they are JSON. A program that submits keeps one producer. All
// other calls about tasks, such as GetTask, ListTasks, CancelTask and RetryTask, are those of
// TaskService, on the same connection.
func Example_producer() {
	tb := newTB() // in a test, pass t
	defer tb.end()
	c := workertest.Start(tb)
	type order struct {
		Month string `json:"month"`
	}
	w := c.Worker("reports", worker.Config{})
	w.Handle("render", worker.JSON(func(_ context.Context, _ *worker.Task, o order) (map[string]string, error) {
		return map[string]string{"file": o.Month + ".pdf"}, nil
	}))
	c.Run(w)

	p := producer.New(c.Conn()) // in a program, worker.Dial makes the connection
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	payload, err := json.Marshal(order{Month: "2026-11"})
	tb.check(err)
	spec := &lessorv1.TaskSpec{Queue: "reports", Type: "render", Payload: payload, IdempotencyKey: "report of 2026-11"}
	first, err := p.Submit(ctx, spec)
	tb.check(err)
	again, err := p.Submit(ctx, spec) // the key makes a repeat harmless
	tb.check(err)
	fmt.Println("created:", first.GetCreated(), again.GetCreated())

	task, err := p.Wait(ctx, first.GetTaskId())
	tb.check(err)
	output, err := producer.Result(task) // a *producer.TaskError if the task failed or was cancelled
	tb.check(err)
	fmt.Println(string(output))
	// Output:
	// created: true false
	// {"file":"2026-11.pdf"}
}

// Tasks that are submitted under one run are waited for together, also by a program that has only
// the name of the run, such as the same one after it was started again.
func Example_run() {
	tb := newTB() // in a test, pass t
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("thumbs", worker.Config{})
	w.HandleDefault(func(_ context.Context, t *worker.Task) ([]byte, error) {
		if string(t.Payload) == "b.txt" {
			return nil, worker.Permanent(errors.New("not an image"))
		}
		return nil, nil
	})
	c.Run(w)

	p := producer.New(c.Conn()) // in a program, worker.Dial makes the connection
	defer p.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range []string{"a.png", "b.txt", "c.png"} {
		_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "thumbs", RunId: "nightly", IdempotencyKey: name, Payload: []byte(name)})
		tb.check(err)
	}

	counts, err := p.WaitRun(ctx, producer.Run{ID: "nightly"})
	tb.check(err)
	fmt.Println(counts.Completed, "completed,", counts.Failed, "failed,", counts.Cancelled, "cancelled")
	if counts.Failed > 0 {
		failed, err := lessorv1.NewTaskServiceClient(c.Conn()).ListTasks(ctx, &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{
			RunId: "nightly", States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_FAILED},
		}}) // the first 100; next_page_token gets the others
		tb.check(err)
		for _, task := range failed.GetTasks() {
			fmt.Println(task.GetError().GetMessage())
		}
	}
	// Output:
	// 2 completed, 1 failed, 0 cancelled
	// not an image
}

// The error of a handler says what kind of failure it was and whether another attempt makes sense.
// The retry policy of the task decides the rest.
func Example_errors() {
	tb := newTB() // in a test, pass t
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("fetch", func(_ context.Context, t *worker.Task) ([]byte, error) {
		switch {
		case len(t.Payload) == 0: // no attempt will ever succeed
			return nil, worker.WithCategory(worker.DataQuality, errors.New("no URL given"))
		case t.Attempt == 1: // the server told us when to try again
			return nil, worker.RetryAfter(time.Millisecond, errors.New("429 Too Many Requests"))
		case t.Attempt == 2: // the machine is at fault, not the task: no failure is counted
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

// A checkpoint that was saved is available to the next attempt, also on another machine.
func ExampleTask_SaveCheckpoint() {
	tb := newTB() // in a test, pass t
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

// Right before an effect that must not happen twice, Confirm asks the coordinator whether the
// attempt still holds its lease. If the request is delayed nevertheless, the receiver can refuse it
// because of its fencing token.
func ExampleTask_Confirm() {
	tb := newTB() // in a test, pass t
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

// context.Cause tells a handler why its context ended, and so what it may still do.
func Example_cause() {
	tb := newTB() // in a test, pass t
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("wait", func(ctx context.Context, t *worker.Task) ([]byte, error) {
		<-ctx.Done()
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, worker.ErrLeaseLost): // another attempt may already run: touch nothing
		case errors.Is(cause, worker.ErrCancelled): // clean up until the GraceEnds of the *worker.StopError
			fmt.Println("cancelled:", t.CancelReason())
		case errors.Is(cause, worker.ErrDraining):
			// save a checkpoint, with context.WithoutCancel(ctx); another worker goes on from it
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

// People who watch the task see what the handler writes to Output while it runs; it is not kept. A
// result that is stored elsewhere is an artifact, which is kept with the task.
func ExampleTask_Output() {
	tb := newTB() // in a test, pass t
	defer tb.end()
	c := workertest.Start(tb)
	w := c.Worker("q", worker.Config{})
	w.Handle("build", func(_ context.Context, t *worker.Task) ([]byte, error) {
		fmt.Fprintln(t.Output("log"), "compiling", string(t.Payload))
		t.AddArtifact(worker.Artifact{ResourceID: "s3://builds/a.out", Type: "application/x-executable", Size: 4096})
		return nil, nil
	})

	p := producer.New(c.Conn())
	defer p.Close()
	id := c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "build", Payload: []byte("main.go")})
	for event, err := range p.Watch(context.Background(), id) {
		tb.check(err)
		if event.GetHistory().GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_SUBMITTED {
			c.Run(w) // only now, so that this watch misses nothing
		}
		fmt.Print(event.GetChunk().GetText())
	}
	fmt.Println(c.Task(id).GetArtifacts()[0].GetResourceId())
	// Output:
	// compiling main.go
	// s3://builds/a.out
}
