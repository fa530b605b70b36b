//go:build !race

package lease_test

import "testing"

// The table bounds the allocations of each command of a task's life, those for making the command
// included. Lower a bound when the code allocates less, and do not raise one: garbage was the first
// thing that profiles showed.
func TestAllocationsOfAStep(t *testing.T) {
	most := map[string]float64{"submit": 6, "grant": 5, "ack": 7, "start": 7, "heartbeat": 7, "complete": 9}
	l := newLife()
	for _, c := range l.commands() {
		before := l.view.task
		n := testing.AllocsPerRun(100, func() {
			l.view.task = before
			l.step(t, c.make())
		})
		if n > most[c.name] {
			t.Errorf("%s makes %v allocations, want at most %v", c.name, n, most[c.name])
		}
	}
}
