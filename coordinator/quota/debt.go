package quota

import "time"

// Debt is what is still owed of costs that add up. A cost is a span of time, and is paid back as
// time passes. The zero value owes nothing.
type Debt struct{ paid time.Time } // when all is paid back

// Owed returns how long it takes until all is paid back; it is never negative.
func (d Debt) Owed(now time.Time) time.Duration { return max(d.paid.Sub(now), 0) }

// Plus returns the debt with a cost added. A negative cost gives back.
func (d Debt) Plus(cost time.Duration, now time.Time) Debt {
	if d.paid.Before(now) {
		d.paid = now
	}
	return Debt{d.paid.Add(cost)}
}
