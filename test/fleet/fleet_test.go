//go:build faults

package fleet

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

const (
	queue = "fleet"
	runID = "fleet"
)

// The two workers; the victim is killed or paused.
const (
	victim   = "victim"
	survivor = "survivor"
)

// Heartbeat timeouts. The long one is for leases that must not expire while their worker is only
// slow.
const (
	shortTTL = 2 * time.Second
	longTTL  = 6 * time.Second
)

// TestWorkerKilled: of two SDK workers with 10,000 tasks, one is killed. Every task is committed
// exactly once, and the verdicts that the workers printed are those that the coordinator stores
// (A1, A2, A5, A6).
func TestWorkerKilled(t *testing.T) {
	const tasks, killAfter = 10_000, 2_500
	f := newFleet(t, tasks, shortTTL)
	a, b := newTally(t, victim, killAfter), newTally(t, survivor, 0)
	first, second := f.startWorker(a), f.startWorker(b)
	f.await(a.enough, "the victim did not begin enough")
	first.Kill()
	f.work.AwaitDone()
	f.end(second)
	f.count()
	f.comparePrinted(a, true)
	f.comparePrinted(b, false)
	f.log(a, b)
}

// TestWorkerPaused: a worker stands still until the other one has completed all of its tasks, and
// then goes on. Its late reports are answered SUPERSEDED and change nothing: the outputs are those
// of the other worker (A4, V9).
func TestWorkerPaused(t *testing.T) {
	const tasks, pauseAfter = 2_000, 500
	f := newFleet(t, tasks, longTTL)
	a, b := newTally(t, victim, pauseAfter), newTally(t, survivor, 0)
	first, second := f.startWorker(a), f.startWorker(b)
	f.await(a.enough, "the victim did not begin enough")
	first.Pause()
	f.work.AwaitDone()
	first.Resume()
	f.end(first, second)
	f.count()
	f.comparePrinted(a, false)
	f.comparePrinted(b, false)
	// both are 0 if the victim noticed by itself that its leases were lost
	if a.reasons[superseded] != a.counts[cancelled] {
		t.Errorf("V9: the victim was told CANCELLED %d times: %v", a.counts[cancelled], a.reasons)
	}
	f.log(a, b)
}

// log prints the counts.
func (f *fleet) log(a, b *tally) {
	f.t.Helper()
	cut := f.cutOff(a.starts)
	f.t.Logf("%d tasks, counted after a restart of the coordinator: %s", f.tasks, f)
	f.t.Logf("the workers printed %d starts, of which the fault cut %d off, and %d + %d COMMITTED, %d CANCELLED",
		len(a.starts)+len(b.starts), cut, a.counts[committed], b.counts[committed], a.counts[cancelled]+b.counts[cancelled])
}

// startWorker starts the test binary as a worker.
func (f *fleet) startWorker(n *tally) *harness.Process {
	f.t.Helper()
	return harness.Start(f.t, harness.Command{
		Path:   harness.Self(f.t),
		Env:    []string{workerName + "=" + n.name, workerAddr + "=" + f.c.Addr(), workerHangs + "=" + fmt.Sprint(n.want)},
		Stdout: n.lines(),
	})
}

// comparePrinted compares what a worker printed with what the coordinator stores. A killed worker
// may have had no time to print its last verdicts.
func (f *fleet) comparePrinted(n *tally, killed bool) {
	f.t.Helper()
	for a, count := range n.starts {
		if count != 1 {
			f.t.Errorf("A2: %s began attempt %v %d times", n.name, a, count)
		}
	}
	for a, verdicts := range n.verdicts {
		isCommitted := verdicts[0] == committed
		if len(verdicts) != 1 {
			f.t.Errorf("K1: %s got %d verdicts for attempt %v: %v", n.name, len(verdicts), a, verdicts)
		}
		if isCommitted != (f.completedBy[a] == n.name) {
			f.t.Errorf("A6: %s was told %v for attempt %v, which was completed by %q", n.name, verdicts, a, f.completedBy[a])
		}
	}
	for a, name := range f.completedBy {
		if name == n.name && f.outputs[a.task] != name {
			f.t.Errorf("A5: attempt %v of %s was committed, and the output is that of %q", a, name, f.outputs[a.task])
		}
		if name == n.name && n.verdicts[a] == nil && !killed {
			f.t.Errorf("K5: attempt %v of %s was committed, but the worker got no verdict", a, name)
		}
	}
}

// fleet is a coordinator with a queue of tasks.
type fleet struct {
	t     *testing.T
	ctx   context.Context
	c     *harness.Coordinator
	tasks int
	work  *harness.Tasks

	// From the histories of the tasks:
	completedBy map[attempt]string // the worker whose Complete was committed
	lost        map[attempt]string // the worker whose lease ended without a report
	again       int                // how many tasks were granted more than once
	outputs     map[string]string  // the output of each task
}

func newFleet(t *testing.T, tasks int, ttl time.Duration) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	t.Cleanup(cancel)
	f := &fleet{
		t: t, ctx: ctx, c: harness.NewCoordinator(t, t.TempDir()), tasks: tasks,
		completedBy: map[attempt]string{}, lost: map[attempt]string{}, outputs: map[string]string{},
	}
	f.c.Start()
	f.work = harness.NewTasks(ctx, t, runID, func() grpc.ClientConnInterface { return f.c.Conn() })
	f.work.Submit(tasks, harness.Resilient(queue, ttl))
	return f
}

func (f *fleet) await(ch <-chan struct{}, otherwise string) {
	f.t.Helper()
	select {
	case <-ch:
	case <-f.ctx.Done():
		f.t.Fatal(otherwise)
	}
}

func isCompletion(e *lessorv1.HistoryEvent) bool {
	return e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED
}

// end stops the remaining workers in order, and restarts the coordinator, so that what is counted
// afterwards is durable.
func (f *fleet) end(workers ...*harness.Process) {
	f.t.Helper()
	for _, w := range workers {
		if code := w.Stop(); code != 0 {
			f.t.Errorf("%v ended with exit code %d:\n%s", w, code, w.Stderr())
		}
	}
	f.c.Stop()
	f.c.Start()
}
