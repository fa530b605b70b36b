package worker

import (
	"math/rand/v2"
	"time"
)

// backoff is an exponential wait with jitter: each wait is drawn from the upper half of a span that doubles from least
// to most, so that a fleet that lost its coordinator at one instant does not return at one instant.
type backoff struct {
	least, most time.Duration
	failures    int
	last        time.Duration
}

// next returns the wait after a session that went on for lasted once it was open; 0: it never was. One that outlasted
// the wait before it begins the waits anew, so that breaks now and then never add up.
func (b *backoff) next(lasted time.Duration) time.Duration {
	if lasted > b.last {
		b.failures = 0
	}
	b.last = backoffWait(b.failures, b.least, b.most)
	b.failures++
	return b.last
}

// backoffWait is the wait after failures earlier ones.
func backoffWait(failures int, least, most time.Duration) time.Duration {
	span := most
	// 40 doublings of a nanosecond are 18 minutes: beyond, the shift would only overflow.
	if failures < 40 && least<<failures>>failures == least {
		span = min(least<<failures, most)
	}
	return span/2 + rand.N(span/2+1)
}
