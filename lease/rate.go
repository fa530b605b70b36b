package lease

import (
	"fmt"
	"math"
	"time"
)

// Rate limits grants to PerSecond on average and Burst at once. The zero value is no limit.
type Rate struct {
	PerSecond float64
	Burst     uint32 // 0: what PerSecond allows in a second, at least 1
}

// Bucket says how much of a rate limit is used. The zero value is unused.
type Bucket struct {
	Used float64 // grants of the burst that are used
	At   Instant // when Used was computed
}

// UsedUp returns a bucket whose burst is used completely. A start gives it to a queue whose bucket
// is not known, so that the restart does not let through more grants than the limit.
func UsedUp(now Instant) Bucket { return Bucket{Used: math.Inf(1), At: now} }

// At returns the bucket at the time now.
func (r Rate) At(b Bucket, now Instant) Bucket {
	passed := max(now.Sub(b.At), 0)
	used := min(b.Used, float64(r.burst())) - passed.Seconds()*r.PerSecond
	return Bucket{Used: max(used, 0), At: max(now, b.At)}
}

// Take returns the bucket after one grant at now.
func (r Rate) Take(b Bucket, now Instant) Bucket {
	b = r.At(b, now)
	b.Used++
	return b
}

// Next returns when the next grant is allowed: now or later.
func (r Rate) Next(b Bucket, now Instant) Instant {
	over := r.At(b, now).Used + 1 - float64(r.burst())
	if over <= 0 {
		return now
	}
	return now.Add(max(time.Duration(math.Ceil(over/r.PerSecond*float64(time.Second))), 1))
}

// String returns the rate in words.
func (r Rate) String() string {
	if r.PerSecond > 0 && r.PerSecond < 1 {
		return fmt.Sprintf("one grant each %v", time.Duration(float64(time.Second)/r.PerSecond).Round(time.Millisecond))
	}
	return fmt.Sprintf("%v grants a second", r.PerSecond)
}

func (r Rate) burst() uint32 {
	if r.Burst != 0 {
		return r.Burst
	}
	return max(1, uint32(r.PerSecond))
}
