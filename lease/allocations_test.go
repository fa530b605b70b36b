//go:build !race

package lease_test

import "testing"

// What a command allocates, the command itself included, only gets less: garbage was the first thing that profiles showed.
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
			t.Errorf("%s allocates %v times, want at most %v", c.name, n, most[c.name])
		}
	}
}
