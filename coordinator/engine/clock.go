package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// clock makes the serving clock: it goes on from where the store last saw it, on the monotonic clock of this process. Downtime is
// not counted, and a jump of the wall clock does not touch it (A8, A9).
type clock struct {
	base  lease.Instant
	start time.Time // with its monotonic reading
}

func newClock(base lease.Instant) *clock { return &clock{base: base, start: time.Now()} }

// now is safe for concurrent use.
func (c *clock) now() lease.Now {
	t := time.Now()
	return lease.Now{Serving: c.base.Add(t.Sub(c.start)), Wall: wallAt(t)}
}
