//go:build faults

package network

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/test/proxy"
)

// lineTTL is the heartbeat timeout of the tasks of TestLines. Connections are blocked for less than
// that, and for more.
const lineTTL = 3 * time.Second

// TestLines: connections are reset, slow, or carry bytes one way only or not at all, for less than
// a lease and for more. That costs attempts at most: each task is completed exactly once, and what
// arrives late when a blocked connection works again changes nothing (A1, A4, A5, W8).
func TestLines(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	defer cancel()
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start()
	n := &lines{t: t, relay: proxy.NewRelay(t, c.Addr)}
	n.work = harness.NewTasks(ctx, t, "lines", func() grpc.ClientConnInterface { return c.Conn() })
	const workers = 8
	fleet := startFleet(ctx, t, n.relay.Addr(), workers, handle)
	n.submit()
	for range 5 {
		n.reset()
	}
	n.slow()
	for _, d := range []time.Duration{lineTTL / 3, lineTTL * 4 / 3} {
		n.cut(d, proxy.ToCoordinator)
		n.cut(d, proxy.ToWorker)
		n.cut(d, proxy.ToCoordinator, proxy.ToWorker)
	}
	n.work.AwaitDone()
	fleet.stop()
	t.Logf("%v", fleet.seen.Check(t, n.work.Read(), nil))
	t.Logf("%d connections were reset; %d and %d bytes waited on their way to the coordinator and to workers",
		n.resets, n.relay.Held(proxy.ToCoordinator), n.relay.Held(proxy.ToWorker))
}

// lines disturbs the connections while tasks are submitted.
type lines struct {
	t      *testing.T
	relay  *proxy.Relay
	work   *harness.Tasks
	resets int
}

func (n *lines) submit() {
	spec := harness.Resilient(queue, lineTTL)
	spec.HeartbeatInterval = durationpb.New(lineTTL / 15)
	n.work.Submit(400, spec)
}

// reset resets the connections of all workers, and waits until there is at least one.
func (n *lines) reset() {
	n.t.Helper()
	n.submit()
	for from := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if broken := n.relay.Reset(); broken > 0 {
			n.resets += broken
			return
		}
		if time.Since(from) > harness.Patience {
			n.t.Fatal("no worker came back after a reset")
		}
	}
}

func (n *lines) slow() {
	n.relay.Slow(50 * time.Millisecond)
	n.submit()
	time.Sleep(lineTTL / 2)
	n.relay.Slow(0)
}

// cut blocks directions for a time, and until some bytes had to wait in each.
func (n *lines) cut(d time.Duration, directions ...proxy.Direction) {
	n.t.Helper()
	before := [2]int64{n.relay.Held(proxy.ToCoordinator), n.relay.Held(proxy.ToWorker)}
	for _, w := range directions {
		n.relay.Block(w)
	}
	n.submit()
	time.Sleep(d)
	for _, w := range directions {
		for from := time.Now(); n.relay.Held(w) == before[w]; time.Sleep(10 * time.Millisecond) {
			if time.Since(from) > harness.Patience {
				n.t.Fatalf("no bytes waited on their way %v while that direction was blocked", w)
			}
		}
	}
	for _, w := range directions {
		n.relay.Unblock(w)
	}
}
