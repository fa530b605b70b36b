package quota

import (
	"math"
	"strconv"
	"time"
)

// Rate allows PerSecond on average and Burst at once. The zero value, and an infinite PerSecond, is no limit.
type Rate struct {
	PerSecond float64
	Burst     uint32 // 0: what PerSecond allows in a second, at least 1
}

// longest bounds spans, so that none overflows.
const longest = 365 * 24 * time.Hour

func (r Rate) limits() bool { return r.PerSecond > 0 && !math.IsInf(r.PerSecond, 1) }

func (r Rate) burst() float64 {
	if r.Burst != 0 {
		return float64(r.Burst)
	}
	return max(1, math.Floor(r.PerSecond))
}

// span is the time in which the rate allows n, rounded down: so a burst that is taken one by one is never more than one that is taken at once.
func (r Rate) span(n float64) time.Duration {
	return time.Duration(min(n/r.PerSecond*float64(time.Second), float64(longest)))
}

// wait is how long it takes until n may be taken, where all that was taken is paid back at paid; 0: at once. More than the burst may be taken at
// once too, when all is paid back: later takings wait the longer for it.
func (r Rate) wait(paid, now time.Time, n int) time.Duration {
	owed := max(paid.Sub(now), 0)
	return max(owed-r.span(max(r.burst()-float64(n), 0)), 0)
}

// take returns when all is paid back after n were taken.
func (r Rate) take(paid, now time.Time, n int) time.Time {
	if paid.Before(now) {
		paid = now
	}
	return paid.Add(r.span(float64(n)))
}

// String is the rate as settings have it: 50/s, or 50/s:200 with a burst of its own; "none".
func (r Rate) String() string {
	if !r.limits() {
		return "none"
	}
	text := strconv.FormatFloat(r.PerSecond, 'g', -1, 64) + "/s"
	if r.Burst != 0 {
		text += ":" + strconv.FormatUint(uint64(r.Burst), 10)
	}
	return text
}
