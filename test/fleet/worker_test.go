//go:build faults

package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// With these variables the test binary runs as a worker. It handles tasks itself: ten thousand are
// too many to start a program for each.
const (
	workerName  = "LESSOR_FLEET_WORKER"
	workerAddr  = "LESSOR_FLEET_ADDR"
	workerHangs = "LESSOR_FLEET_HANGS" // the number of the start whose handler does not return
)

func TestMain(m *testing.M) {
	if name := os.Getenv(workerName); name != "" {
		hangs, _ := strconv.ParseInt(os.Getenv(workerHangs), 10, 64) // if it is missing, 0: none
		os.Exit(work(name, os.Getenv(workerAddr), hangs))
	}
	harness.Main(m)
}

// work is the worker process. It prints each start and each verdict with one write, so that a line
// is complete or missing.
func work(name, addr string, hangs int64) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conn, err := worker.Dial(addr)
	if err == nil {
		defer conn.Close()
		var w *worker.Worker
		w, err = worker.New(conn, []string{queue}, worker.Config{
			Name:        name,
			Concurrency: 16,
			Logger:      slog.New(slog.DiscardHandler),
			Hooks:       worker.Hooks{OnVerdict: printVerdict},
		})
		if err == nil {
			w.HandleDefault(handler(name, hangs))
			err = w.Run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// handler takes a moment for each task. The handler of start number hangs does not return as long
// as it has its lease, so that an attempt is certainly under way when that start is seen and the
// process is killed or paused. Its output is the worker's name.
func handler(name string, hangs int64) worker.Handler {
	var starts atomic.Int64
	return func(ctx context.Context, t *worker.Task) ([]byte, error) {
		moment := time.Duration(rand.IntN(4000)) * time.Microsecond
		if starts.Add(1) == hangs {
			moment = time.Hour
		}
		printLine("start", t.ID, t.Attempt, "-", "-")
		ctx, cancel := context.WithTimeout(ctx, moment)
		defer cancel()
		<-ctx.Done()
		return []byte(name), nil
	}
}

func printVerdict(t *worker.Task, v *lessorv1.ReportVerdict) {
	printLine("verdict", t.ID, t.Attempt, v.GetVerdict().String(), v.GetReason().String())
}

func printLine(what, id string, attempt uint32, verdict, reason string) {
	_, _ = fmt.Fprintf(os.Stdout, "%s %s %d %s %s\n", what, id, attempt, verdict, reason)
}
