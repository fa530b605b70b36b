package engine

import (
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// clock is the serving clock. It starts at the value that the store saved last, and advances with
// the monotonic clock of this process. It does not count downtime, which includes the time of a
// start, and a jump of the wall clock does not change it (A8, A9).
type clock struct {
	base  lease.Instant
	wall  func(time.Time) time.Time
	start atomic.Pointer[time.Time] // with its monotonic reading; nil before run
}

// newClock makes a serving clock that starts at base. What the wall clock shows is what wall makes
// of the time of the machine.
func newClock(base lease.Instant, wall func(time.Time) time.Time) *clock {
	return &clock{base: base, wall: wall}
}

// run starts the clock. Before run, the engine serves no calls.
func (c *clock) run() {
	now := time.Now()
	c.start.Store(&now)
}

// now reads both clocks. It is safe for concurrent use.
func (c *clock) now() lease.Now {
	start := c.start.Load()
	t := time.Now()
	if start == nil {
		start = &t
	}
	return lease.Now{Serving: c.base.Add(t.Sub(*start)), Wall: lease.WallOf(c.wall(t))}
}

// clocks are both clocks as the loop reads them: whatever it does between two readings happens at
// the same time. It belongs to the loop.
type clocks struct {
	clock   *clock
	last    lease.Now     // as they were read last
	ahead   time.Duration // value of wallAhead when jump was called last
	savedAt lease.Instant // serving clock in the newest batch that was handed over with something to commit
}

// set sets the serving clock to a clock that has not started. The store has the time saved.
func (c *clocks) set(to *clock, saved lease.Instant) {
	c.clock, c.last, c.savedAt = to, to.now(), saved
}

// start starts the serving clock.
func (c *clocks) start() {
	c.clock.run()
	c.last = c.clock.now()
	c.ahead = wallAhead(c.last)
}

// now returns both clocks as they were read last.
func (c *clocks) now() lease.Now { return c.last }

// read reads both clocks, and returns the time since the last reading.
func (c *clocks) read() (passed time.Duration) {
	before := c.last.Serving
	c.last = c.clock.now()
	return c.last.Serving.Sub(before)
}

// readUpTo is read, but the loop goes on no later than most after the last reading: the next
// reading finds the rest.
func (c *clocks) readUpTo(most time.Duration) {
	before := c.last.Serving
	if c.read() > most {
		c.last.Serving = before.Add(most)
	}
}

// jump returns by how much the wall clock was set between this reading and the one at which jump
// was called last.
func (c *clocks) jump() time.Duration {
	before := c.ahead
	c.ahead = wallAhead(c.last)
	return c.ahead - before
}

// wallAhead is the wall clock minus the serving clock.
func wallAhead(now lease.Now) time.Duration {
	return time.Duration(now.Wall) - time.Duration(now.Serving)
}

// served returns the time since the start.
func (c *clocks) served() time.Duration { return c.last.Serving.Sub(c.clock.base) }

// saved is called when a batch with the time at is handed over.
func (c *clocks) saved(at lease.Instant) { c.savedAt = at }

// unsaved returns the time since the one that saved was last called with.
func (c *clocks) unsaved() time.Duration { return c.last.Serving.Sub(c.savedAt) }
