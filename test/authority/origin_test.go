//go:build faults

package authority

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// TestOtherMonotonicOrigin: a coordinator starts when the monotonic clock counts from another
// origin, as after a reboot of the machine. It neither ends leases early nor keeps them alive (A8,
// A9).
func TestOtherMonotonicOrigin(t *testing.T) {
	t.Parallel() // it mostly waits
	elsewhere := []string{"unshare", "--time", "--monotonic", "1000000", "--boottime", "1000000", "--"}
	uptime := exec.Command(elsewhere[0], append(elsewhere[1:], "cat", "/proc/uptime")...)
	if out, err := uptime.CombinedOutput(); err != nil || len(strings.Split(string(out), ".")[0]) < len("1000000") {
		t.Skipf("SKIPPED: no time namespace, or not for a process that unshares it itself: %v: %s", err, out)
	}
	w := newWatch(newRig(t), 2*time.Second)
	w.startCoordinator()
	w.holdLease()
	const origins = 4
	for i := range origins {
		w.addSilentLease()
		w.kill()
		if w.c.Under = elsewhere; i%2 == 1 {
			w.c.Under = nil
		}
		w.startCoordinator()
		for w.check() > 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	m, err := w.complete(w.held)
	if must(w.rig, m, err).GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Errorf("A9: Complete under the held lease = %v, want COMMITTED", m)
	}
	t.Logf("%d starts, each under another origin, %d silent leases of %v; the longest was seen alive after at least %v of serving time",
		origins, w.ended, w.ttl, w.longest.Round(time.Millisecond))
}
