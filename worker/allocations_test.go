//go:build !race

package worker_test

import "testing"

// The worker makes at most this many allocations for a task that does nothing, without the wire and
// the codec. Garbage was a large part of the cost of a short task. If the number falls, lower the
// limit.
func TestAllocationsOfATask(t *testing.T) {
	const most, runs, tasks = 9, 50, 100
	c := startInstantCoordinator(t, tasks)
	rounds := c.rounds(runs+1, tasks)
	n := testing.AllocsPerRun(runs, func() {
		c.serve(rounds[0])
		rounds = rounds[1:]
	})
	if n /= tasks; n > most {
		t.Errorf("%v allocations for a task, want at most %v", n, most)
	}
}
