//go:build faults

package network

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/witness"
	"github.com/lessor-dev/lessor/worker"
)

const queue = "network"

// fleet has SDK workers in the process of the test, each with its own connection.
type fleet struct {
	t        *testing.T
	handle   func(context.Context) error
	seen     *witness.Witness
	broken   atomic.Int64 // how many sessions broke
	running  sync.WaitGroup
	shutDown context.CancelFunc
}

func startFleet(
	ctx context.Context, t *testing.T, addr string, n int, handle func(context.Context) error, opts ...grpc.DialOption,
) *fleet {
	t.Helper()
	f := &fleet{t: t, handle: handle, seen: witness.New()}
	ctx, f.shutDown = context.WithCancel(ctx)
	for i := range n {
		f.start(ctx, addr, fmt.Sprintf("worker-%d", i), opts)
	}
	return f
}

func (f *fleet) start(ctx context.Context, addr, name string, opts []grpc.DialOption) {
	f.t.Helper()
	conn, err := worker.Dial(addr, append(opts, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}))...)
	if err != nil {
		f.t.Fatal(err)
	}
	w, err := worker.New(conn, []string{queue}, worker.Config{
		Name: name, Concurrency: 8, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Hooks: f.hooks(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	w.HandleDefault(func(ctx context.Context, task *worker.Task) ([]byte, error) {
		f.seen.Start(name, attemptOf(task.ID, task.Attempt), time.Now())
		return nil, f.handle(ctx)
	})
	f.running.Go(func() {
		defer conn.Close()
		if err := w.Run(ctx); err != nil {
			f.t.Errorf("%s: %v", name, err)
		}
	})
}

func (f *fleet) hooks() worker.Hooks {
	return worker.Hooks{
		OnVerdict: func(t *worker.Task, v *lessorv1.ReportVerdict) {
			f.seen.Verdict(attemptOf(t.ID, t.Attempt), v.GetVerdict(), v.GetReason())
		},
		OnStop: func(t *worker.Task, err error) { f.seen.Stop(attemptOf(t.ID, t.Attempt), err.Error()) },
		OnState: func(s worker.State) {
			if s == worker.StateBackoff {
				f.broken.Add(1)
			}
		},
	}
}

// stop drains the workers, and waits for them.
func (f *fleet) stop() {
	f.shutDown()
	f.running.Wait()
}
