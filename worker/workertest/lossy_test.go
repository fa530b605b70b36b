package workertest_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

var lossySeeds = flag.Uint64("lossy.seeds", 8, "how many connections TestLossyStream tries; the seed says what gets lost on each")

// W5, W6, W7, W8: over streams that lose, double and swap frames, and that break, each task is run
// and committed in one attempt, no handler begins without a live lease, and none is stopped.
func TestLossyStream(t *testing.T) {
	t.Attr("rules", "W5 W6 W7 W8")
	sum := make(map[fate]int)
	for seed := range *lossySeeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lossyRun{t: t, c: workertest.Start(t), runs: make(map[attemptID]int)}
				l.run(seed)
				l.conn.up.addTo(sum)
				l.conn.down.addTo(sum)
			})
		})
	}
	t.Logf("frames: %v", sum)
	for _, o := range odds {
		if sum[o.fate] == 0 {
			t.Errorf("no frame had the fate %q, want at least one", o.fate)
		}
	}
}

type attemptID struct {
	task    string
	attempt uint32
}

// lossyRun runs many tasks in one worker over one lossy connection.
type lossyRun struct {
	t    *testing.T
	c    *workertest.Coordinator
	conn *lossyConn

	mu   sync.Mutex // guards runs
	runs map[attemptID]int
}

func (l *lossyRun) run(seed uint64) {
	const tasks = 100
	l.conn = newLossyConn(l.c.Conn(), seed)
	w, err := worker.New(l.conn, []string{"q"}, worker.Config{Name: "w", Concurrency: 8, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.t.Fatal(err)
	}
	w.HandleDefault(l.handle)
	ids := make([]string, tasks)
	for n := range ids {
		ids[n] = l.c.Submit(&lessorv1.TaskSpec{Queue: "q", Type: "work", Payload: make([]byte, n%50)})
	}
	stop := l.c.Run(w)
	for _, id := range ids {
		l.check(l.c.Wait(id))
	}
	stop()
}

// handle checks that the attempt has a live lease, and then runs for as many tenths of a second as
// the payload has bytes.
func (l *lossyRun) handle(ctx context.Context, task *worker.Task) ([]byte, error) {
	l.mu.Lock()
	l.runs[attemptID{task.ID, task.Attempt}]++
	l.mu.Unlock()
	if got, err := lessorv1.NewTaskServiceClient(l.c.Conn()).GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: task.ID}); err != nil ||
		got.GetTask().GetAttempt() != task.Attempt || !leased(got.GetTask()) {
		l.t.Errorf("task %s attempt %d began without a live lease: GetTask = %v, %v", task.ID, task.Attempt, got, err)
	}
	select {
	case <-time.After(time.Duration(len(task.Payload)) * 100 * time.Millisecond):
		return task.Payload, nil
	case <-ctx.Done():
		l.t.Errorf("task %s attempt %d was stopped with %v, want it to finish", task.ID, task.Attempt, context.Cause(ctx))
		return nil, ctx.Err()
	}
}

func leased(task *lessorv1.Task) bool {
	return task.GetState() == lessorv1.TaskState_TASK_STATE_LEASED || task.GetState() == running
}

// check checks that a task was run once and committed in its first attempt.
func (l *lossyRun) check(task *lessorv1.Task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wantState(l.t, task, completed)
	id := task.GetTaskId()
	if n := l.runs[attemptID{id, task.GetAttempt()}]; n != 1 {
		l.t.Errorf("task %s: the attempt that was committed ran %d times, want once", id, n)
	}
	if task.GetAttempt() != 1 || task.GetLosses() != 0 || task.GetFailures() != 0 {
		l.t.Errorf("task %s: %d attempts, %d losses, %d failures, want 1, 0 and 0; history %v",
			id, task.GetAttempt(), task.GetLosses(), task.GetFailures(), task.GetHistory())
	}
}
