package lease

import (
	"math"
	"time"
)

// Instant is a reading of the serving clock: nanoseconds for which the coordinator has served since its store was made.
// It is monotonic, stands still while the coordinator is down, and never goes back across a restart by more than the
// commit that a crash lost. Leases, backoffs and grace periods are counted on it, so that neither downtime nor a jump of
// the wall clock can shorten one (A8, A9).
type Instant int64

// Add returns i + d, held at the ends of the range instead of wrapping around.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	switch {
	case d > 0 && sum < i:
		return math.MaxInt64
	case d < 0 && sum > i:
		return math.MinInt64
	}
	return sum
}

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Wall is a reading of the wall clock in nanoseconds since 1970 UTC; 0 means "no time". Only what people set by the
// calendar is measured on it: run_at, deadline and retention.
type Wall int64

// WallOf converts a time, held at the ends of the range (the years 1677 and 2262); the zero time becomes 0.
func WallOf(t time.Time) Wall {
	switch {
	case t.IsZero():
		return 0
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	}
	return Wall(t.UnixNano())
}

// Time converts back; 0 becomes the zero time.
func (w Wall) Time() time.Time {
	if w == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(w)).UTC()
}

// clockTime is how times are told to people.
const clockTime = "2006-01-02T15:04:05.000Z"

// Add returns w + d, held at the end of the range.
func (w Wall) Add(d time.Duration) Wall { return Wall(Instant(w).Add(d)) }

// Now is one reading of both clocks, taken together.
type Now struct {
	Serving Instant
	Wall    Wall
}

// Back returns the reading that both clocks had d ago.
func (n Now) Back(d time.Duration) Now {
	return Now{Serving: n.Serving.Add(-d), Wall: n.Wall.Add(-d)}
}

// WallAt tells which wall time the serving instant i has or will have, seen from n.
func (n Now) WallAt(i Instant) Wall { return n.Wall.Add(i.Sub(n.Serving)) }
