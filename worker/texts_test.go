package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// The worker changes texts and names that a handler or a Config gives and that the coordinator
// would refuse, such as control characters or texts that are too long. They cost the task neither
// its outcome nor its lease, and the coordinator reports no error.
func TestInvalidTextsAreReplaced(t *testing.T) {
	const bad = "line 1\nline 2\x7f"
	long := strings.Repeat("x", 100<<10)
	for name, test := range map[string]struct {
		says    func(*worker.Task) error
		want    lessorv1.TaskState
		metrics func(map[string]float64) map[string]float64
		version string
	}{
		"version": {version: bad},
		"metric":  {says: func(t *worker.Task) error { t.SetMetric(bad, 1); t.SetMetric("loss", 2); return nil }},
		"gauge":   {metrics: func(m map[string]float64) map[string]float64 { m[bad] = 1; return m }},
		"stage":   {says: func(t *worker.Task) error { t.Stage(bad); return nil }},
		"stage of a cancelled attempt": {
			says: func(t *worker.Task) error {
				t.Progress(0.5, bad, bad)
				return worker.WithCategory(worker.Cancelled, errors.New("given up"))
			},
			want: lessorv1.TaskState_TASK_STATE_FAILED,
		},
		"chunk": {says: func(t *worker.Task) error {
			t.Emit(worker.Chunk{Channel: bad, MIMEType: bad, Data: []byte("x"), Metadata: map[string]string{bad: bad}})
			_, err := t.Output(bad).Write([]byte(bad))
			return err
		}},
		"release": {says: func(t *worker.Task) error {
			if t.Attempt == 1 {
				return worker.Release(0, bad+long)
			}
			return nil
		}},
		"error": {
			says: func(*worker.Task) error { return worker.WithStack(bad+long, worker.Permanent(errors.New(bad+long))) },
			want: lessorv1.TaskState_TASK_STATE_FAILED,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := workertest.Start(t)
				log := &journal{}
				w := c.Worker("q", worker.Config{
					Version: test.version, Metrics: test.metrics,
					Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError})),
				})
				w.HandleDefault(func(_ context.Context, task *worker.Task) (output []byte, err error) {
					if test.says != nil {
						err = test.says(task)
					}
					if err == nil {
						time.Sleep(5 * time.Minute) // so that heartbeats contain the texts as well
					}
					return nil, err
				})
				c.Run(w)
				task := c.Do(&lessorv1.TaskSpec{Queue: "q", Deadline: in(time.Hour)})
				want := max(test.want, lessorv1.TaskState_TASK_STATE_COMPLETED)
				if task.GetState() != want || task.GetLosses() != 0 || log.String() != "" {
					t.Errorf("the task is %v with %d losses, want %v with none; errors in the log:\n%s",
						task.GetState(), task.GetLosses(), want, log)
				}
			})
		})
	}
}
