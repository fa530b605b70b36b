//go:build faults

package standby

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/worker"
)

// Results, and with them the answers to heartbeats, wait for a standby from which nothing comes,
// for a third of the heartbeat timeout of the tasks; another third is between two heartbeats. No
// worker loses a lease or its session for that: each task is done in its first attempt, and no
// handler is stopped (A8).
func TestLeasesOutliveWaits(t *testing.T) {
	t.Parallel()
	const (
		ttl  = 15 * time.Second
		wait = ttl / 3
		cuts = 2
	)
	p := newRelayed(t, "--standby-wait", wait.String())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for _, name := range []string{"w1", "w2"} {
		p.startWorker(ctx, &workers, name, ttl)
	}
	work := harness.NewTasks(ctx, t, queue, func() grpc.ClientConnInterface { return p.c.Conn() })
	work.Submit(4, harness.Resilient(queue, ttl))
	f := hole("nothing from the standby", toCoordinator)
	for range cuts {
		gaveUp := p.gaveUp()
		p.begin(f)
		p.await("results still wait", func() bool { return p.gaveUp() > gaveUp })
		f.end(p.relay)
		p.awaitWaits()
	}
	work.AwaitDone()
	for _, task := range work.Read() {
		if task.GetAttempt() != 1 {
			t.Errorf("task %s was granted %d times: %v", task.GetTaskId(), task.GetAttempt(), task.GetHistory())
		}
	}
	stop()
	workers.Wait()
}

// startWorker starts a worker whose handlers last longer than a heartbeat timeout. The test fails
// if it loses its session or a lease.
func (p *pair) startWorker(ctx context.Context, running *sync.WaitGroup, name string, ttl time.Duration) {
	p.Helper()
	conn, err := worker.Dial(p.c.Addr())
	if err != nil {
		p.Fatal(err)
	}
	var states []worker.State
	w, err := worker.New(conn, []string{queue}, worker.Config{
		Name: name, Concurrency: 2, Logger: slog.New(slog.DiscardHandler),
		Hooks: worker.Hooks{
			OnState: func(s worker.State) {
				if states = append(states, s); s == worker.StateBackoff {
					p.Errorf("worker %s lost its session: %v", name, states)
				}
			},
			OnStop: func(t *worker.Task, err error) { p.Errorf("the handler of task %s was stopped: %v", t.ID, err) },
			OnVerdict: func(t *worker.Task, v *lessorv1.ReportVerdict) {
				if v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
					p.Errorf("the report of task %s got %v", t.ID, v)
				}
			},
		},
	})
	if err != nil {
		p.Fatal(err)
	}
	w.HandleDefault(func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		select {
		case <-time.After(ttl * 3 / 2):
		case <-ctx.Done():
		}
		return nil, nil
	})
	running.Go(func() {
		defer conn.Close()
		if err := w.Run(ctx); err != nil {
			p.Errorf("worker %s: %v", name, err)
		}
	})
}
