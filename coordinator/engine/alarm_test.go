package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Alarms ring in the order of their instants, those of one instant in the order in which they were
// set. One that an alarm sets rings in the next round at the earliest, even if it is due at once;
// and one that was stopped does not ring.
func TestAlarmsRingInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clocks
		c.set(newClock(0, sameWall), 0)
		c.start()
		as := newAlarms(&c)
		var rung []string
		set := func(after time.Duration, name string) *alarm {
			return as.in(after, func() { rung = append(rung, name) })
		}
		round := func() (names []string) {
			rung = nil
			newest := as.newest()
			for a := as.pop(newest); a != nil; a = as.pop(newest) {
				a.ring()
			}
			return rung
		}
		set(2*time.Second, "third")
		as.in(time.Second, func() {
			rung = append(rung, "first")
			set(0, "next round")
		})
		set(time.Second, "second")
		set(3*time.Second, "later")
		as.stop(set(time.Second, "stopped"))
		as.stop(nil)
		if got := round(); got != nil {
			t.Errorf("%v ring before their time", got)
		}
		if d := as.wait(c.now(), time.Minute); d != time.Second {
			t.Errorf("the loop waits for %v, want 1 s", d)
		}
		time.Sleep(2 * time.Second)
		c.read()
		if got, want := round(), []string{"first", "second", "third"}; !slices.Equal(got, want) {
			t.Errorf("%v ring, want %v", got, want)
		}
		if got, want := round(), []string{"next round"}; !slices.Equal(got, want) {
			t.Errorf("%v ring in the next round, want %v", got, want)
		}
		if d := as.wait(c.now(), time.Millisecond); d != time.Millisecond {
			t.Errorf("the loop waits for %v, want no longer than it may", d)
		}
	})
}
