//go:build faults

package latency

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/test/proxy"
	"github.com/lessor-dev/lessor/worker"
)

func TestMain(m *testing.M) { harness.Main(m) }

// trouble is what is wrong during the calls.
type trouble struct {
	name string
	// disk is strace's injection for the calls to the disk.
	disk string
	// slow is the longest time that the connection holds bytes up.
	slow time.Duration
	// also runs during the calls, until its context ends.
	also func(ctx context.Context, b *testing.B, c *harness.Coordinator)
}

var troubles = []trouble{
	{name: "none"},
	{name: "syncs take 10 ms", disk: "fdatasync:delay_enter=10000"},
	{name: "the line takes up to 20 ms", slow: 20 * time.Millisecond},
	{name: "backups", also: func(ctx context.Context, b *testing.B, c *harness.Coordinator) {
		for ctx.Err() == nil {
			harness.Start(b, harness.Command{Args: []string{"backup", "--addr", c.Addr(), "--force", filepath.Join(b.TempDir(), "file")}, Stdout: io.Discard}).Wait()
		}
	}},
	{name: "stands still 100 ms of 500", also: func(ctx context.Context, _ *testing.B, c *harness.Coordinator) {
		for ctx.Err() == nil {
			c.Process().Pause()
			time.Sleep(100 * time.Millisecond)
			c.Process().Resume()
			time.Sleep(400 * time.Millisecond)
		}
	}},
	{name: "a crowd connects and goes", also: func(ctx context.Context, b *testing.B, c *harness.Coordinator) {
		for ctx.Err() == nil {
			crowd(b, c.Addr(), 100)
		}
	}},
	{name: "64 callers that never wait", also: func(ctx context.Context, b *testing.B, c *harness.Coordinator) {
		var busy sync.WaitGroup
		for range 64 {
			busy.Go(func() {
				for ctx.Err() == nil {
					_ = runTask(ctx, c.Conn())
				}
			})
		}
		busy.Wait()
	}},
}

// BenchmarkLife measures the submit, lease and completion of a task by one caller: three calls,
// each of them durable.
func BenchmarkLife(b *testing.B) {
	for _, tr := range troubles {
		b.Run(tr.name, func(b *testing.B) {
			c := harness.NewCoordinator(b, b.TempDir())
			if tr.disk != "" {
				c.Under = harness.Strace(b, tr.disk)
			}
			c.Start()
			line := proxy.NewRelay(b, c.Addr)
			line.Slow(tr.slow)
			conn, err := worker.Dial(line.Addr())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			ctx, stop := context.WithCancel(b.Context())
			var also sync.WaitGroup
			if tr.also != nil {
				also.Go(func() { tr.also(ctx, b, c) })
			}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := runTask(b.Context(), conn); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			stop()
			also.Wait()
			report(b, took)
		})
	}
}

// runTask submits a task, and leases and completes one; with several callers, that may be another
// one's task.
func runTask(ctx context.Context, conn *grpc.ClientConn) error {
	tasks, workers := lessorv1.NewTaskServiceClient(conn), lessorv1.NewWorkerServiceClient(conn)
	spec := &lessorv1.TaskSpec{Queue: "latency", Payload: make([]byte, 256)}
	if _, err := tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
		return err
	}
	got, err := workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "latency", Queues: []string{"latency"}})
	if err != nil {
		return err
	}
	for _, a := range got.GetAssignments() {
		m, err := workers.Complete(ctx, &lessorv1.CompleteRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
		if err != nil {
			return err
		}
		if m.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			return fmt.Errorf("Complete = %v, want COMMITTED", m)
		}
	}
	return nil
}

// crowd opens connections, sends nothing, and closes them.
func crowd(b *testing.B, addr string, n int) {
	conns := make([]net.Conn, 0, n)
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// BenchmarkRestart measures the time from a kill -9 to the first answer of the next process, with
// so many tasks in the store.
func BenchmarkRestart(b *testing.B) {
	for _, tasks := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%d tasks", tasks), func(b *testing.B) {
			c := harness.NewCoordinator(b, b.TempDir())
			c.Start()
			if tasks > 0 {
				harness.NewTasks(b.Context(), b, "restart", func() grpc.ClientConnInterface { return c.Conn() }).
					Submit(tasks, harness.Resilient("latency", time.Minute))
			}
			var took []time.Duration
			for b.Loop() {
				c.Kill()
				began := time.Now()
				c.Start()
				took = append(took, time.Since(began))
			}
			report(b, took)
		})
	}
}

func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	at := func(share float64) float64 { return took[int(share*float64(len(took)-1))].Seconds() * 1000 }
	b.ReportMetric(0, "ns/op") // not printed: the metrics below replace it
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(at(1), "most-ms")
}
