//go:build faults

package network

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/test/harness"
	"github.com/lessor-dev/lessor/test/proxy"
	"github.com/lessor-dev/lessor/test/witness"
)

var (
	tasks = flag.Int("tasks", 10_000, "tasks of TestFrames")
	seed  = flag.Uint64("seed", 0, "what is drawn; 0: another one each time")
)

func TestMain(m *testing.M) { harness.Main(m) }

// rates are the probabilities of the faults for each frame. Those that cost a new connection are
// lower.
var rates = proxy.Rates{
	proxy.Drop: 0.04, proxy.Duplicate: 0.04, proxy.Reorder: 0.04, proxy.Delay: 0.02,
	proxy.Cut: 0.01, proxy.Tear: 0.01,
}

// least is how often each fault must take effect in each direction.
const least = 20

// TestFrames: whatever happens to the frames of their sessions, each task is completed exactly
// once, none is stuck, and no handler begins without a live lease (A1, A4, A5, W5 to W8).
func TestFrames(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	ctx, cancel := context.WithTimeout(t.Context(), 4*harness.Patience)
	defer cancel()
	c := harness.NewCoordinator(t, t.TempDir())
	c.Start()
	between := proxy.New(t, c.Addr, *seed, rates)
	work := harness.NewTasks(ctx, t, "frames", func() grpc.ClientConnInterface { return c.Conn() })
	spec := harness.Resilient(queue, 6*time.Second)
	spec.HeartbeatInterval = durationpb.New(200 * time.Millisecond)
	work.Submit(*tasks, spec)
	const workers = 16
	fleet := startFleet(ctx, t, between.Addr(), workers, handle)
	work.AwaitDone()
	between.StopFaults()
	fleet.stop()
	t.Logf("%v", fleet.seen.Check(t, work.Read(), nil))
	t.Logf("the network did: %v", between)
	for _, s := range between.TooRare(least) {
		t.Error(s)
	}
}

// handle is the workers' handler. It takes a moment; one time in a hundred long enough for
// heartbeats and new connections.
func handle(ctx context.Context) error {
	moment := rand.N(4 * time.Millisecond)
	if rand.IntN(100) == 0 {
		moment = rand.N(time.Second)
	}
	select {
	case <-time.After(moment):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
}

// attemptOf identifies the attempt of a handler.
func attemptOf(id string, number uint32) witness.Attempt {
	return witness.Attempt{Task: id, Number: number}
}
