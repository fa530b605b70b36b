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
}

// next returns the wait after one more failure.
func (b *backoff) next() time.Duration {
	wait := backoffWait(b.failures, b.least, b.most)
	b.failures++
	return wait
}

// reset forgets the failures.
func (b *backoff) reset() { b.failures = 0 }

// backoffWait is the wait after failures earlier ones.
func backoffWait(failures int, least, most time.Duration) time.Duration {
	span := most
	// 40 doublings of a nanosecond are 18 minutes: beyond, the shift would only overflow.
	if failures < 40 && least<<failures>>failures == least {
		span = min(least<<failures, most)
	}
	return span/2 + rand.N(span/2+1)
}
