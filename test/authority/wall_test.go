//go:build faults

package authority

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// TestWallClockJumps: the wall clock of the machine jumps while leases are held, under a running coordinator and during a restart. No lease ends
// early or late by that (A8).
func TestWallClockJumps(t *testing.T) {
	const year = 365 * 24 * time.Hour
	wall := newWallClock(t)
	w := newWatch(newRig(t), time.Second)
	w.c.Env = []string{wallFile + "=" + wall.path}
	w.startCoordinator()
	w.holdLease()
	jumps := 0
	for _, restart := range []bool{false, true} {
		for _, shift := range []time.Duration{time.Hour, -time.Hour, 10 * year, 0} {
			w.addSilentLease()
			if restart {
				w.kill()
			}
			wall.set(shift)
			if restart {
				w.startCoordinator()
			}
			w.checkWallClock(shift)
			for w.check() > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			if jumps++; restart {
				jumps = 0 // it did not run
			}
			if n := strings.Count(w.c.Process().Stderr(), "the wall clock was set"); n != jumps {
				t.Errorf("the coordinator has logged %d jumps of the wall clock, want %d", n, jumps)
			}
		}
	}
	m, err := w.complete(w.held)
	if must(w.rig, m, err).GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Errorf("A8: Complete under the held lease = %v, want COMMITTED", m)
	}
	t.Logf("%d jumps, %d silent leases of %v; the longest was seen alive after at least %v of serving time", len(w.silent), w.ended, w.ttl,
		w.longest.Round(time.Millisecond))
}

// checkWallClock fails the test if the coordinator does not see the jump.
func (w *watch) checkWallClock(shift time.Duration) {
	w.t.Helper()
	m, err := lessorv1.NewAdminServiceClient(w.c.Conn()).GetStatus(w.ctx, &lessorv1.GetStatusRequest{})
	at := must(w.rig, m, err).GetServerTime().AsTime()
	if off := time.Until(at) - shift; off.Abs() > time.Minute {
		w.t.Fatalf("the coordinator's time is %v, want that its wall clock is off by %v", at, shift)
	}
}

// wallFile is the environment variable with the name of the file that sets how far the wall clock of a coordinator built with the tag faults is off.
const wallFile = "LESSOR_FAULT_WALL"

type wallClock struct {
	t    *testing.T
	path string
}

func newWallClock(t *testing.T) *wallClock {
	t.Helper()
	c := &wallClock{t: t, path: filepath.Join(t.TempDir(), "wall")}
	c.set(0)
	return c
}

// set replaces the file atomically, so that the coordinator never reads part of it.
func (c *wallClock) set(shift time.Duration) {
	c.t.Helper()
	err := os.WriteFile(c.path+".new", []byte(shift.String()), 0o600)
	if err == nil {
		err = os.Rename(c.path+".new", c.path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
