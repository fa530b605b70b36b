package workertest_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// quiet discards the log of the coordinator, which would stand between the figures that benchstat
// reads.
type quiet struct{ *testing.B }

func (quiet) Output() io.Writer { return io.Discard }

// BenchmarkShortTasks measures the rate of tasks that do nothing: dispatch and Complete over one
// stream, with an in-memory coordinator in the same process.
func BenchmarkShortTasks(b *testing.B) {
	for _, concurrency := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			c := workertest.Start(quiet{b})
			client := lessorv1.NewTaskServiceClient(c.Conn())
			for left := b.N; left > 0; left -= 1000 {
				req := &lessorv1.BatchSubmitTasksRequest{}
				for range min(left, 1000) {
					req.Tasks = append(req.Tasks, &lessorv1.TaskSpec{Queue: "q", Type: "work"})
				}
				if _, err := client.BatchSubmitTasks(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
			done := make(chan struct{}, b.N)
			w := c.Worker("q", worker.Config{Concurrency: concurrency, Hooks: worker.Hooks{
				OnVerdict: func(*worker.Task, *lessorv1.ReportVerdict) { done <- struct{}{} },
			}})
			w.Handle("work", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
			b.ResetTimer()
			c.Run(w)
			for range b.N {
				<-done
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}
