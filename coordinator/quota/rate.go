package quota

import (
	"math"
	"strconv"
	"time"
)

// Rate allows PerSecond on average and Burst at once. The zero value, or an infinite PerSecond,
// means no limit.
type Rate struct {
	PerSecond float64
	Burst     uint32 // 0: PerSecond rounded down, at least 1
}

// longest is the longest span, also of a refund. It keeps the conversion to a Duration from
// overflowing.
const longest = 365 * 24 * time.Hour

func (r Rate) limits() bool { return r.PerSecond > 0 && !math.IsInf(r.PerSecond, 1) }

func (r Rate) burst() float64 {
	if r.Burst != 0 {
		return float64(r.Burst)
	}
	return max(1, math.Floor(r.PerSecond))
}

// span returns how long the rate takes to allow n. It rounds towards 0, so that n single takings
// never cost more than n at once. The span of -n is that of n, negated: a refund gives back what
// the taking has cost.
func (r Rate) span(n float64) time.Duration {
	span := n / r.PerSecond * float64(time.Second)
	return time.Duration(max(min(span, float64(longest)), -float64(longest)))
}

// wait returns how long it takes until n may be taken; 0 means at once. d is the debt of what was
// taken before. More than the burst may be taken at once too, but only when everything is paid
// back, and later takings then wait longer.
func (r Rate) wait(d Debt, now time.Time, n int) time.Duration {
	return max(d.Owed(now)-r.span(max(r.burst()-float64(n), 0)), 0)
}

// take returns the debt after n were taken.
func (r Rate) take(d Debt, now time.Time, n int) Debt { return d.Plus(r.span(float64(n)), now) }

// String returns the rate in the form that settings use: 50/s, or 50/s:200 if Burst is set, or
// "none".
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
