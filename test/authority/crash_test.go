//go:build faults

package authority

import (
	"flag"
	"testing"
	"time"
)

var (
	crashEvery = flag.Duration("crash-every", 2*time.Second, "time between kills in TestCrashesUnderLeases")
	crashTTL   = flag.Duration("crash-ttl", 3*time.Second, "heartbeat_timeout in TestCrashesUnderLeases")
)

// TestCrashesUnderLeases: a coordinator that is killed again and again neither keeps the lease of a
// silent worker alive for ever nor ends one early, and a worker that sends heartbeats keeps its
// lease (A9).
func TestCrashesUnderLeases(t *testing.T) {
	t.Parallel() // it mostly waits
	const livesWithGrants, each = 3, 4
	w := newWatch(newRig(t), *crashTTL)
	w.startCoordinator()
	w.holdLease()
	for alive := 1; alive > 0 && !t.Failed(); {
		next := time.Now().Add(*crashEvery)
		for i := 0; time.Now().Before(next); i++ {
			if len(w.lives) <= livesWithGrants && len(w.silent) < len(w.lives)*each && i%4 == 0 {
				w.addSilentLease()
			}
			alive = w.check()
			time.Sleep(20 * time.Millisecond)
		}
		if alive > 0 {
			w.kill()
			w.startCoordinator()
		}
	}
	if len(w.lives) < 2 {
		t.Error("the coordinator was never killed while a silent lease was live: the test shows nothing")
	}
	t.Logf("%d silent leases of %v and one that was held, %d kills; the last was seen alive after at least %v of serving time",
		w.ended, w.ttl, len(w.lives)-1, w.longest.Round(time.Millisecond))
}
