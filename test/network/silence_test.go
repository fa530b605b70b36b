//go:build faults && linux

package network

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/test/harness"
)

// TestSilence: the network drops all packets of one direction or of both and tells nobody, so that
// no connection is refused or reset, for less than a lease and for so long that the system gives up
// connections. That costs attempts at most: each task is completed exactly once, and a worker is
// back when its packets are (A1, A4, A5, W8).
func TestSilence(t *testing.T) {
	n := newIslands(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	defer cancel()
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start("--listen", n.coordinator.String()+":0", "--insecure")
	work := harness.NewTasks(ctx, t, "silence", func() grpc.ClientConnInterface { return c.Conn() })
	spec := harness.Resilient(queue, lineTTL)
	spec.HeartbeatInterval = durationpb.New(200 * time.Millisecond)
	work.Submit(2000, spec)
	const workers = 8
	fleet := startFleet(ctx, t, "passthrough:///"+c.Addr(), workers, handleSlowly, grpc.WithContextDialer(n.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	cut := func(d time.Duration, to ...netip.Addr) {
		mend := n.silence(to...)
		n.mustBeSilent(ctx, c.Addr())
		sleep(ctx, d)
		mend()
		sleep(ctx, time.Second)
	}
	for _, d := range []time.Duration{lineTTL / 10, lineTTL / 3, lineTTL * 4 / 3} {
		cut(d, n.coordinator)
		cut(d, n.workers)
		cut(d, n.coordinator, n.workers)
	}
	before := fleet.broken.Load()
	cut(25*time.Second, n.coordinator, n.workers)
	if broken := fleet.broken.Load() - before; broken < workers {
		t.Errorf("%d sessions broke in a long silence, want all %d", broken, workers)
	}
	work.AwaitDone()
	fleet.stop()
	t.Logf("%v", fleet.seen.Check(t, work.Read(), nil))
	t.Logf("sessions broke %d times", fleet.broken.Load())
}

// mustBeSilent fails the test if a connection comes about, or is refused.
func (n *islands) mustBeSilent(ctx context.Context, addr string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	conn, err := n.dial(ctx, addr)
	if err == nil {
		_ = conn.Close()
	}
	if e, ok := err.(net.Error); !ok || !e.Timeout() { //nolint:errorlint // as net returns it
		n.t.Errorf("a connection through the silence: %v, want a timeout", err)
	}
}

// handleSlowly is a handler of which a silence hits many.
func handleSlowly(ctx context.Context) error {
	sleep(ctx, rand.N(2*time.Second))
	return context.Cause(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
