package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// What the loop leaves out of a reading, the next reading finds.
func TestReadingUpToALimitLosesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clocks
		c.set(newClock(1000, sameWall), 1000)
		c.start()
		time.Sleep(3 * time.Second)
		c.readUpTo(time.Second)
		if passed := c.now().Serving.Sub(1000); passed != time.Second {
			t.Errorf("the loop goes on after %v, want 1 s", passed)
		}
		if passed := c.read(); passed != 2*time.Second {
			t.Errorf("the next reading finds %v, want 2 s", passed)
		}
		time.Sleep(time.Second)
		c.readUpTo(time.Second)
		if passed := c.read(); passed != 0 {
			t.Errorf("the next reading finds %v, want nothing", passed)
		}
	})
}

// The clock that was saved last does not move while the loop reads the clocks, so that unsaved
// grows.
func TestUnsavedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clocks
		c.set(newClock(1000, sameWall), 1000)
		time.Sleep(time.Hour) // a start takes long: that is downtime, and does not count
		c.start()
		time.Sleep(3 * time.Second)
		if c.read(); c.unsaved() != 3*time.Second {
			t.Errorf("%v are unsaved, want 3 s", c.unsaved())
		}
		c.saved(c.now().Serving)
		time.Sleep(time.Second)
		if c.read(); c.unsaved() != time.Second {
			t.Errorf("%v are unsaved after a commit, want 1 s", c.unsaved())
		}
	})
}
