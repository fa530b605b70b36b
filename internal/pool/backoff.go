package pool

import "time"

// backoff is how long a worker waits between two of its processes. It doubles from least to most.
type backoff struct {
	least, most time.Duration
	failures    int
}

// next returns the wait after a process that was ready for the given time. If that was longer than
// any wait, the waits begin again with least, so that occasional failures do not add up.
func (b *backoff) next(ready time.Duration) time.Duration {
	if ready > b.most {
		b.failures = 0
	}
	wait := b.least
	for range b.failures {
		if wait >= b.most {
			break
		}
		wait *= 2
	}
	b.failures++
	return min(wait, b.most)
}
