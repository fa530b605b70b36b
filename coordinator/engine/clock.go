package engine

import (
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// clock makes the serving clock: it goes on from where the store last saw it, on the monotonic clock of this process. Downtime is
// not counted, the time that a start takes included, and a jump of the wall clock does not touch it (A8, A9).
type clock struct {
	base  lease.Instant
	start atomic.Pointer[time.Time] // with its monotonic reading; nil before run
}

func newClock(base lease.Instant) *clock { return &clock{base: base} }

// run sets the clock going. Until then nobody is served.
func (c *clock) run() {
	now := time.Now()
	c.start.Store(&now)
}

// now is safe for concurrent use.
func (c *clock) now() lease.Now {
	start := c.start.Load()
	t := time.Now()
	if start == nil {
		start = &t
	}
	return lease.Now{Serving: c.base.Add(t.Sub(*start)), Wall: wallAt(t)}
}
