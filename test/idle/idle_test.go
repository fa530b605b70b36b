//go:build faults || long

package idle

import (
	"flag"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

var (
	number = flag.Int("sessions", sessions, "idle sessions")
	beats  = flag.Int("beats", 10, "heartbeats of each session")
)

func TestMain(m *testing.M) { harness.Main(m) }

// most is how much memory of the coordinator a session may cost, where there are 2,000 or more.
const most = 48 << 10

// TestIdleSessions: thousands of workers without work cost little, and are soon back after the coordinator was killed (W8, W9).
func TestIdleSessions(t *testing.T) {
	needFiles(t, *number+100)
	c := harness.NewCoordinator(t, t.TempDir())
	c.Path = harness.Plain(t, "cmd/lessor")
	serve := []string{"--http", "127.0.0.1:0", "--pprof", "--session-heartbeat-interval", "1h"} // none but those that are counted
	c.Start(serve...)
	workers := newCrowd(t)

	before := memoryOf(t, c)
	opened := workers.open(c.Addr(), *number)
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
	t.Logf("all %d were back %v after the coordinator served again", *number, workers.open(c.Addr(), *number).Round(time.Millisecond))
}
