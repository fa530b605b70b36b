package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// countText runs handle for a file with that text, against a real coordinator.
func countText(t *testing.T, text string, handle worker.Handler) *lessorv1.Task {
	t.Helper()
	name := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return countFile(t, name, handle)
}

func countFile(t *testing.T, name string, handle worker.Handler) *lessorv1.Task {
	t.Helper()
	c := workertest.Start(t)
	w := c.Worker("text", worker.Config{})
	w.Handle("wordcount", handle)
	c.Run(w)
	return c.Do(&lessorv1.TaskSpec{Queue: "text", Type: "wordcount", Payload: []byte(name)})
}

func TestCount(t *testing.T) {
	task := countText(t, "one two\nthree\n", count)
	if string(task.GetOutput()) != "3" {
		t.Errorf("the task is %v with output %q, want output 3", task.GetState(), task.GetOutput())
	}
}

// A text may be a single long line.
func TestLongLineIsCounted(t *testing.T) {
	task := countText(t, strings.Repeat("word ", 100_000), count)
	if string(task.GetOutput()) != "100000" {
		t.Errorf("the task is %v with output %q, error %v; want output 100000",
			task.GetState(), task.GetOutput(), task.GetError())
	}
}

// If the file does not exist, the task fails and is not retried.
func TestMissingFileIsNotRetried(t *testing.T) {
	task := countFile(t, filepath.Join(t.TempDir(), "nowhere"), count)
	if task.GetState() != lessorv1.TaskState_TASK_STATE_FAILED || task.GetAttempt() != 1 {
		t.Errorf("the task is %v after attempt %d, want FAILED after attempt 1", task.GetState(), task.GetAttempt())
	}
}

// The second attempt continues from the checkpoint that the first attempt saved.
func TestNextAttemptGoesOn(t *testing.T) {
	text := strings.Repeat("two words\n", linesPerSave+10)
	task := countText(t, text, func(ctx context.Context, task *worker.Task) ([]byte, error) {
		if task.Attempt == 1 {
			if err := task.SaveCheckpoint(ctx, []byte("100000 200000")); err != nil {
				return nil, err
			}
			return nil, worker.RetryAfter(1, errors.New("the machine is going away"))
		}
		if string(task.Checkpoint) != "100000 200000" {
			t.Errorf("checkpoint %q, want %q", task.Checkpoint, "100000 200000")
		}
		return count(ctx, task)
	})
	if string(task.GetOutput()) != "200020" {
		t.Errorf("the task is %v with output %q, want output 200020", task.GetState(), task.GetOutput())
	}
}

// waitingReader says when it is read first, and then waits for the end of ctx.
type waitingReader struct {
	io.Reader
	ctx     context.Context
	reached chan<- struct{}
}

func (r waitingReader) Read(p []byte) (int, error) {
	select {
	case r.reached <- struct{}{}:
	case <-r.ctx.Done():
	}
	<-r.ctx.Done()
	return r.Reader.Read(p)
}

// A worker that drains saves its position, however short the file, and another worker goes on from
// there. If the task is cancelled, it ends.
func TestHandlerStops(t *testing.T) {
	c := workertest.Start(t)
	text := strings.Repeat("two words\n", 2_500)
	reached := make(chan struct{})
	half := func(ctx context.Context, task *worker.Task) ([]byte, error) {
		n, err := countWords(ctx, task, io.MultiReader(strings.NewReader(text),
			waitingReader{strings.NewReader(text), ctx, reached}))
		return fmt.Append(nil, n), err
	}
	first := c.Worker("text", worker.Config{})
	first.Handle("wordcount", half)
	stop := c.Run(first)
	id := c.Submit(&lessorv1.TaskSpec{Queue: "text", Type: "wordcount"})
	<-reached
	first.Drain(0)
	stop()

	second := c.Worker("text", worker.Config{})
	second.Handle("wordcount", func(ctx context.Context, task *worker.Task) ([]byte, error) {
		if string(task.Checkpoint) != "3000 6000" {
			t.Errorf("checkpoint %q, want %q", task.Checkpoint, "3000 6000")
		}
		n, err := countWords(ctx, task, strings.NewReader(text+text))
		return fmt.Append(nil, n), err
	})
	second.Handle("cancelled", half)
	c.Run(second)
	if task := c.Wait(id); string(task.GetOutput()) != "10000" || task.GetFailures() != 0 {
		t.Errorf("the task is %v with output %q and %d failures, want output 10000",
			task.GetState(), task.GetOutput(), task.GetFailures())
	}

	id = c.Submit(&lessorv1.TaskSpec{Queue: "text", Type: "cancelled"})
	<-reached
	c.Cancel(id, "not needed")
	if task := c.Wait(id); task.GetState() != lessorv1.TaskState_TASK_STATE_CANCELLED {
		t.Errorf("the cancelled task is %v", task.GetState())
	}
}
