//go:build faults

package restart

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/test/proxy"
	"github.com/lessor-dev/lessor/test/witness"
)

const (
	queue   = "restart"
	workers = 4
	slots   = 16
	// ttl is how long the task of a killed worker waits for another attempt. With heartbeats each
	// second, a lease outlives a restart of the coordinator even on a machine or disk that stands
	// still for some seconds.
	ttl      = 8 * time.Second
	interval = time.Second
)

// fleet is a coordinator and worker processes. They connect to a relay, whose address stays the
// same over restarts of the coordinator.
type fleet struct {
	t     *testing.T
	c     *harness.Coordinator
	relay *proxy.Relay
	work  *harness.Tasks
	seen  *witness.Witness

	procs  [workers]*harness.Process
	names  [workers]string // of the processes; each new process gets a new name
	lives  int
	killed map[string]bool
}

func newFleet(t *testing.T, tasks int) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	t.Cleanup(cancel)
	c := harness.NewCoordinator(t, t.TempDir())
	f := &fleet{t: t, c: c, seen: witness.New(), killed: map[string]bool{}, relay: proxy.NewRelay(t, c.Addr)}
	c.Start()
	f.work = harness.NewTasks(ctx, t, queue, func() grpc.ClientConnInterface { return c.Conn() })
	f.submit(tasks)
	for i := range f.procs {
		f.start(i)
	}
	return f
}

func (f *fleet) submit(n int) {
	spec := harness.Resilient(queue, ttl)
	spec.HeartbeatInterval = durationpb.New(interval)
	f.work.Submit(n, spec)
}

// start starts the worker process of place i. All processes of a place have the same worker name.
func (f *fleet) start(i int) {
	f.t.Helper()
	f.lives++
	life := fmt.Sprintf("life-%d", f.lives)
	f.names[i] = life
	f.procs[i] = harness.Start(f.t, harness.Command{
		Path: harness.Self(f.t), Stdout: harness.Lines(func(line string) { f.readLine(life, line) }),
		Env: []string{fmt.Sprintf("%s=worker-%d", workerName, i), workerAddr + "=" + f.relay.Addr()},
	})
}

// readLine reads a line that a worker prints.
func (f *fleet) readLine(life, line string) {
	var what string
	var a witness.Attempt
	var x, y int64
	if _, err := fmt.Sscan(line, &what, &a.Task, &a.Number, &x, &y); err != nil {
		f.t.Errorf("%s printed %q", life, line)
		return
	}
	switch what {
	case "start":
		f.seen.Start(life, a, time.Unix(0, x))
	case "stop":
		f.seen.Stop(a, life)
	case "verdict":
		f.seen.Verdict(a, lessorv1.Verdict(x), lessorv1.Reason(y))
	}
}

// awaitBusy submits tasks until worker i has attempts under way, and returns how many.
func (f *fleet) awaitBusy(i int) int {
	f.t.Helper()
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if n := f.seen.Open(f.names[i]); n > 0 {
			return n
		}
		f.submit(slots)
	}
	f.t.Fatalf("worker %d got nothing to do:\n%s", i, f.procs[i].Stderr())
	return 0
}

// stopAll stops all workers in order.
func (f *fleet) stopAll() {
	f.t.Helper()
	for _, p := range f.procs {
		if code := p.Stop(); code != 0 {
			f.t.Errorf("%v ended with exit code %d:\n%s", p, code, p.Stderr())
		}
	}
}
