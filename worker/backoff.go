package worker

import (
	"math/rand/v2"
	"time"
)

// backoff is an exponential wait with jitter. Each wait is random in the upper half of a span that
// doubles from least to most. So workers that lost their coordinator at the same moment do not all
// reconnect at the same moment.
type backoff struct {
	least, most time.Duration
	failures    int
	last        time.Duration
}

// next returns the wait after a session that was served for lasted; 0 if it could not be opened. If
// the session lasted longer than the wait before it, the waits begin again with least, so that
// occasional breaks do not add up.
func (b *backoff) next(lasted time.Duration) time.Duration {
	if lasted > b.last {
		b.failures = 0
	}
	b.last = backoffWait(b.failures, b.least, b.most)
	b.failures++
	return b.last
}

// backoffWait returns the wait after the given number of earlier failures.
func backoffWait(failures int, least, most time.Duration) time.Duration {
	span := most
	// Doubling a nanosecond 40 times gives 18 minutes; with more doublings the shift could
	// overflow.
	if failures < 40 && least<<failures>>failures == least {
		span = min(least<<failures, most)
	}
	return span/2 + rand.N(span/2+1)
}
