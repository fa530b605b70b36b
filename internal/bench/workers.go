package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// workerGroup is the workers of a phase: ordinary ones of the SDK, whose handlers do nothing.
type workerGroup struct {
	rig       *rig
	target    int64
	committed atomic.Int64
	finished  chan struct{} // closed with the verdict that reaches the target
	ready     sync.WaitGroup
	stop      context.CancelFunc
	ended     <-chan struct{} // closed when all workers have ended
	err       error           // why they ended too early; valid once ended is closed

	// onStart and onVerdict may be nil.
	onStart, onVerdict func()
}

// run starts the workers. They end with stop.
func (c *workerGroup) run(ctx context.Context) {
	c.finished = make(chan struct{})
	patient, done := c.rig.patient(ctx)
	ctx, c.stop = context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	for i := range c.rig.Workers {
		c.ready.Add(1)
		group.Go(func() error { return c.work(ctx, patient, fmt.Sprintf("bench-%d", i+1)) })
	}
	ended := make(chan struct{})
	c.ended = ended
	go func() {
		defer close(ended)
		defer done()
		c.err = group.Wait()
	}()
}

// maxBackoff is the longest wait of a worker before it reconnects, and so before it notices that
// patience is over.
const maxBackoff = time.Second

// work runs one worker on a connection of its own. The end of ctx drains it, that of patient ends
// it at once.
func (c *workerGroup) work(ctx, patient context.Context, name string) error {
	registered := sync.OnceFunc(c.ready.Done)
	defer registered()
	conn, err := c.rig.server.connect()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(patient, func() { _ = conn.Close() })()
	ctx, fail := context.WithCancelCause(ctx)
	w, err := worker.New(conn, []string{queue}, worker.Config{
		Tenant:      c.rig.Tenant,
		Name:        name,
		Workspace:   c.rig.workspace,
		Concurrency: c.rig.Slots,
		Logger:      slog.New(slog.DiscardHandler),
		Metrics:     omitFullness,
		MaxBackoff:  maxBackoff,
		Hooks: worker.Hooks{
			OnState: func(s worker.State) {
				if s >= worker.StateRegistered {
					registered()
				}
			},
			OnStart:   func(*worker.Task) { call(c.onStart) },
			OnVerdict: func(t *worker.Task, v *lessorv1.ReportVerdict) { c.count(t, v, fail) },
			OnError:   func(err error) { fail(fmt.Errorf("worker %s: %w", name, err)) },
		},
	})
	if err != nil {
		return err
	}
	w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
	if err := w.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != context.Canceled { //nolint:errorlint // stop, and nothing that wraps the same
		return cause
	}
	return nil
}

// omitFullness removes how full memory and disk of the machine are from what a worker reports:
// above a threshold it would get no work.
func omitFullness(measured map[string]float64) map[string]float64 {
	delete(measured, "mem_pct")
	delete(measured, "disk_pct")
	return measured
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// count counts a verdict. Any verdict but COMMITTED fails the run. A task that came when the worker
// was about to end was given back, and does not count.
func (c *workerGroup) count(t *worker.Task, v *lessorv1.ReportVerdict, fail context.CancelCauseFunc) {
	if v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		fail(fmt.Errorf("the completion of task %s was answered %s, %s", t.ID, v.GetVerdict(), v.GetReason()))
		return
	}
	if v.GetTaskState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
		return
	}
	call(c.onVerdict)
	if c.committed.Add(1) == c.target {
		close(c.finished)
	}
}

var errNoWorker = errors.New("no worker is left")

// wait returns nil when the target is reached, or the reason why it will not be.
func (c *workerGroup) wait(ctx context.Context) error {
	select {
	case <-c.finished:
		return nil
	case <-c.ended:
		return cmp.Or(c.err, errNoWorker)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shutdown ends the workers in order.
func (c *workerGroup) shutdown() error {
	c.stop()
	<-c.ended
	return c.err
}
