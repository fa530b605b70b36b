package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A jump of the wall clock is told once, with its direction; small differences are not, however
// many there are.
func TestWallClockSet(t *testing.T) {
	var told []time.Duration
	runWith(t, Config{Events: Events{WallClockSet: func(by time.Duration) { told = append(told, by) }}}, func(r *rig) {
		jump := func(by time.Duration) {
			// as if the clocks had been so far apart at the last reading
			onLoop(r, func() int { r.clocks.ahead -= by; return 0 })
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		for range 10 {
			jump(900 * time.Millisecond)
		}
		jump(time.Hour)
		jump(-time.Second)
		if want := []time.Duration{time.Hour, -time.Second}; !slices.Equal(told, want) {
			r.Errorf("told %v, want %v", told, want)
		}
	})
}
