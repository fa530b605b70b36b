//go:build faults || long

package idle

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

var (
	number = flag.Int("sessions", sessions, "idle sessions")
	beats  = flag.Int("beats", 10, "heartbeats of each session")
)

func TestMain(m *testing.M) { harness.Main(m) }

// atOnce is how many sessions open at the same time before the memory is measured. If all do, the
// goroutines that open them grow and go in any order, and leave holes between the stacks that stay:
// up to 1,300 bytes for each session, by chance.
const atOnce = 64

// most is the memory of the coordinator, in bytes, that a session may cost. It holds for 2,000
// sessions or more.
const most = 48 << 10

// TestIdleSessions: the memory of an idle session is bounded (W11), and after a kill of the
// coordinator all sessions come back (W8, W9). The processor time of heartbeats and the time until
// all are back are only printed.
func TestIdleSessions(t *testing.T) {
	files := *number + 100 // open; nearly all are connections from one address, which by default may have half of them
	needFiles(t, files)
	c := harness.NewCoordinator(t, t.TempDir())
	c.Path = harness.BuildPlain(t, "cmd/lessor")
	serve := []string{
		// only the heartbeats that are counted
		"--http", "127.0.0.1:0", "--pprof", "--session-heartbeat-interval", "1h",
		"--max-connections", strconv.Itoa(files), "--max-connections-of-address", strconv.Itoa(files),
	}
	c.Start(serve...)
	workers := newCrowd(t)

	before := memoryOf(t, c)
	opened := workers.open(c.Addr(), *number, atOnce)
	after := memoryOf(t, c)
	each := after.less(before, *number)
	t.Logf("%d sessions opened in %v; memory of the coordinator for each: %d bytes of heap and %d of stacks; %d anonymous",
		*number, opened.Round(time.Millisecond), each.heap, each.stacks, each.anonymous)
	if held := each.heap + each.stacks; held > most {
		t.Errorf("W11: an idle session holds %d bytes, and at most %d are allowed", held, most)
	}

	spent := processorTime(t, c.Process())
	took := workers.beat(*beats)
	spent = processorTime(t, c.Process()) - spent
	count := *number * *beats
	t.Logf("%d heartbeats in %v; processor time of the coordinator for 1,000: %v",
		count, took.Round(time.Millisecond), (spent * 1000 / time.Duration(count)).Round(10*time.Microsecond))

	c.Kill()
	c.Start(serve...)
	t.Logf("all %d were back %v after the coordinator served again",
		*number, workers.open(c.Addr(), *number, *number).Round(time.Millisecond))
}
