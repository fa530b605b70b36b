package readiness_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lessor-dev/lessor/worker/readiness"
)

// A program that pools start.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := readiness.FromEnv()
	if errors.Is(err, readiness.ErrNoPool) {
		fmt.Println("start this with lessor pool run")
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return
	}

	// A process that is not ready in time is killed, so whatever takes long comes with an error.
	used, err := loadModel(ctx)
	if err != nil {
		_ = pool.Failed(ctx, err.Error()) // the process ends anyway
		return
	}
	err = pool.Ready(ctx, readiness.Ready{
		Endpoint: "http://127.0.0.1:8001", VRAMUsedBytes: used, SlotsTotal: 4,
		ModelRef: "llama",
	})
	if err != nil { // "409 Conflict: ...": there is another process of this name, or this one is to stop
		fmt.Fprintln(os.Stderr, "error:", err)
		return
	}

	<-ctx.Done() // the pool stops: it sends SIGTERM
	_ = pool.Draining(context.WithoutCancel(ctx))
	// Output: start this with lessor pool run
}

// loadModel stands for what a process does before it is ready.
func loadModel(context.Context) (vramUsedBytes uint64, err error) { return 24 << 30, nil }
