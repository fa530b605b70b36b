package producer_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// quiet discards the log of the coordinator, which would stand between the figures that benchstat
// reads.
type quiet struct{ *testing.B }

func (quiet) Output() io.Writer { return io.Discard }

// BenchmarkSubmitAndWait has so many callers, each of which submits a task that takes up to two
// seconds, and waits for it. One operation is that of all of them. late is how long after the end
// of its task a Wait returns: the median, and that of one in a hundred.
func BenchmarkSubmitAndWait(b *testing.B) {
	for _, callers := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := workertest.Start(quiet{b})
			w := c.Worker("q", worker.Config{Concurrency: callers})
			w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) {
				time.Sleep(rand.N(2 * time.Second))
				return nil, nil
			})
			c.Run(w)
			p := producer.New(c.Conn())
			var late []time.Duration
			for b.Loop() {
				times := make([]time.Duration, callers)
				var all sync.WaitGroup
				for i := range times {
					all.Go(func() {
						made, err := p.Submit(b.Context(), &lessorv1.TaskSpec{Queue: "q"})
						if err != nil {
							b.Error(err)
							return
						}
						task, err := p.Wait(b.Context(), made.GetTaskId())
						if err != nil {
							b.Error(err)
						}
						times[i] = time.Since(task.GetFinishedAt().AsTime())
					})
				}
				all.Wait()
				late = append(late, times...)
			}
			b.StopTimer()
			_ = p.Close()
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "late-ms")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "late99-ms")
		})
	}
}
