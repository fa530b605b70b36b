package lease

import (
	"math"
	"time"
)

// Instant is a reading of the serving clock: the nanoseconds for which the coordinator has served
// since its store was made. The clock is monotonic and stops while the coordinator is down. After a
// crash it can go back, but only by the time since the last durable commit. Leases, backoffs and
// grace periods use this clock, so neither downtime nor a jump of the wall clock can shorten one
// (A8, A9).
type Instant int64

// Add returns i + d. Where the sum is out of range, Add returns the end of the range instead of
// wrapping around.
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

// Wall is a reading of the wall clock in nanoseconds since 1970 UTC; 0 means "no time". Only the
// times that people set by the calendar use this clock: run_at, deadline, retention and the expiry
// of resources.
type Wall int64

// WallOf converts a time; the zero time becomes 0. A time out of range becomes the end of the range
// (the years 1677 and 2262).
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

// Time converts w to a time in UTC; 0 becomes the zero time.
func (w Wall) Time() time.Time {
	if w == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(w)).UTC()
}

// clockTime is the format of times in messages to people.
const clockTime = "2006-01-02T15:04:05.000Z"

// Add returns w + d, or the end of the range where the sum is out of range.
func (w Wall) Add(d time.Duration) Wall { return Wall(Instant(w).Add(d)) }

// Now is one reading of both clocks, taken together.
type Now struct {
	Serving Instant
	Wall    Wall
}

// back returns the reading of both clocks d before n.
func (n Now) back(d time.Duration) Now {
	return Now{Serving: n.Serving.Add(-d), Wall: n.Wall.Add(-d)}
}

// WallAt converts the serving instant i, past or future, to wall time. It assumes that both clocks
// run alike before and after n.
func (n Now) WallAt(i Instant) Wall { return n.Wall.Add(i.Sub(n.Serving)) }
