//go:build faults

package restart

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/witness"
)

var (
	tasks = flag.Int("tasks", 2_000, "tasks of each test")
	kills = flag.Int("kills", 5, "kills of the coordinator, and of workers, in TestKills")
)

// TestKills: coordinator and workers are killed in turn, each while attempts are under way. Each
// task is committed exactly once; only attempts whose worker was killed are lost, and no handler is
// stopped (A5, A9, W8).
func TestKills(t *testing.T) {
	f := newFleet(t, *tasks)
	carried := 0
	for range *kills {
		carried += f.awaitBusy(rand.IntN(workers))
		f.c.Kill()
		f.c.Start()

		i := rand.IntN(workers)
		f.awaitBusy(i)
		f.killed[f.names[i]] = true
		f.procs[i].Kill()
		f.start(i)
	}
	f.work.AwaitDone()
	f.stopAll()
	sum := f.seen.Check(t, f.work.Read(), func(a witness.Attempt, life string, why lessorv1.Reason) {
		if life != "" && !f.killed[life] {
			t.Errorf("A9: attempt %v was lost (%v) although its worker process %s was not killed", a, why, life)
		}
	})
	if sum.Stopped > 0 {
		t.Errorf("A9: %d handlers were stopped, want none", sum.Stopped)
	}
	t.Logf("%d kills of the coordinator, %d of workers; at least %d attempts were under way at the former; %v",
		*kills, *kills, carried, sum)
}

// TestRollingRestart: all workers, and the coordinator after each of them, are stopped by SIGTERM
// and started again. No lease is lost, no handler is stopped, and no task takes longer than a
// restart may explain (W8, W10).
func TestRollingRestart(t *testing.T) {
	f := newFleet(t, 0)
	var longest time.Duration // of a stop with the following start; no task should have to wait through two of them
	note := func(begun time.Time) { longest = max(longest, time.Since(begun)) }
	for i := range f.procs {
		f.submit(*tasks / workers / 2)
		f.awaitBusy(i)
		begun := time.Now()
		if code := f.procs[i].Stop(); code != 0 {
			t.Errorf("%v ended with exit code %d:\n%s", f.procs[i], code, f.procs[i].Stderr())
		}
		f.start(i)
		note(begun)
		begun = time.Now()
		f.c.Stop()
		f.c.Start()
		f.submit(*tasks / workers / 2)
		f.awaitBusy(i)
		note(begun)
	}
	f.work.AwaitDone()
	f.stopAll()
	all := f.work.Read()
	sum := f.seen.Check(t, all, func(a witness.Attempt, life string, why lessorv1.Reason) {
		t.Errorf("W10: the lease of attempt %v of %q was lost: %v", a, life, why)
	})
	if sum.Stopped > 0 {
		t.Errorf("W10: %d handlers were stopped, want none", sum.Stopped)
	}
	slowest := witness.Slowest(all)
	// a handler takes up to two seconds; a task whose lease was lost would take at least a TTL
	if most := longest + ttl; slowest > most {
		t.Errorf("W10: a task took %v from its grant to its end, want at most %v: the longest restart took %v",
			slowest, most, longest)
	}
	t.Logf("%d restarts of the coordinator, as many of workers, of at most %v; no task took more than %v from grant to end; %v",
		workers, longest.Round(time.Millisecond), slowest.Round(time.Millisecond), sum)
}
