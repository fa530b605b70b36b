//go:build faults

package restart

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// With these variables the test binary runs as a worker.
const (
	workerName = "LESSOR_RESTART_WORKER"
	workerAddr = "LESSOR_RESTART_ADDR"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(workerName); name != "" {
		os.Exit(work(name, os.Getenv(workerAddr)))
	}
	harness.Main(m)
}

// work is the worker process. It prints each start, stop and verdict, each with one write.
func work(name, addr string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, name, addr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, name, addr string) error {
	conn, err := worker.Dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	w, err := worker.New(conn, []string{queue}, worker.Config{
		Name: name, Concurrency: slots, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{
			OnVerdict: func(t *worker.Task, v *lessorv1.ReportVerdict) {
				printLine("verdict", t, int64(v.GetVerdict()), int64(v.GetReason()))
			},
			OnStop: func(t *worker.Task, _ error) { printLine("stop", t, 0, 0) },
		},
	})
	if err != nil {
		return err
	}
	w.HandleDefault(handle)
	return w.Run(ctx)
}

// handle takes a moment; one task in ten takes longer than a restart of the coordinator.
func handle(ctx context.Context, t *worker.Task) ([]byte, error) {
	printLine("start", t, time.Now().UnixNano(), 0)
	moment := rand.N(20 * time.Millisecond)
	if rand.IntN(10) == 0 {
		moment = time.Second + rand.N(time.Second)
	}
	select {
	case <-time.After(moment):
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func printLine(what string, t *worker.Task, a, b int64) {
	_, _ = fmt.Fprintf(os.Stdout, "%s %s %d %d %d\n", what, t.ID, t.Attempt, a, b)
}
