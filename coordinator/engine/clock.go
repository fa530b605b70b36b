package engine

import (
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// clock is the serving clock. It starts at the value that the store saved last, and advances with the monotonic clock of this process. It does not
// count downtime, which includes the time of a start, and a jump of the wall clock does not change it (A8, A9).
type clock struct {
	base  lease.Instant
	start atomic.Pointer[time.Time] // with its monotonic reading; nil before run
}

func newClock(base lease.Instant) *clock { return &clock{base: base} }

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
	return lease.Now{Serving: c.base.Add(t.Sub(*start)), Wall: wallAt(t)}
}
