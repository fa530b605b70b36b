package worker

import (
	"fmt"
	"time"
)

// lease is how long one attempt may assume that its lease is live, measured on this process's monotonic clock (A8).
//
// The coordinator sends durations, not times. A duration in an answer is counted from before the request was sent, so it can only be too
// short. A duration in a dispatch is counted from its arrival, so it is too long by the time that the frame was in transit; the first
// answer therefore replaces it. No handler begins on the basis of a dispatch that is no longer recent: the coordinator may have given the
// task to another worker since.
type lease struct {
	deadline time.Time
	answered bool
	// timeout is the attempt_timeout of the task, 0 if it has none, and timeoutBy the latest time at which it can be over.
	timeout   time.Duration
	timeoutBy time.Time
	// staleAt is when the dispatch counts as no longer recent.
	staleAt time.Time
}

// grantedLease returns the lease of a dispatch that was received at the given time. in is the time that the lease had left when the
// dispatch was sent, length its length when it was granted, and maxTransit the longest time that the dispatch can have been in transit.
func grantedLease(received time.Time, in, length, maxTransit time.Duration) lease {
	age := length - in + maxTransit
	return lease{deadline: received.Add(in), staleAt: received.Add(maxDispatchAge(length) - age)}
}

// maxDispatchAge is the highest age at which a dispatch counts as recent, for a lease of this length.
func maxDispatchAge(length time.Duration) time.Duration { return min(length/4, staleDispatchAge) }

// mustConfirm reports whether the only evidence for the lease is a dispatch that is no longer recent.
func (l *lease) mustConfirm(now time.Time) bool { return !l.answered && now.After(l.staleAt) }

// renew updates the lease from the answer to a request that was made at the given time.
func (l *lease) renew(asked time.Time, in time.Duration) {
	deadline := asked.Add(in)
	if !l.answered || deadline.After(l.deadline) {
		l.deadline = deadline
	}
	l.answered = true
}

// left is the time until the deadline. The lease is live while it is positive (A3: at the deadline it is expired).
func (l *lease) left(now time.Time) time.Duration { return l.deadline.Sub(now) }

// expiryError says why the lease has expired.
func (l *lease) expiryError() *StopError {
	detail := "no renewal arrived before the lease expired"
	if l.timeout > 0 && l.deadline.Add(maxDispatchAge(l.timeout)).After(l.timeoutBy) {
		detail = fmt.Sprintf("the attempt_timeout of %v is over", l.timeout)
	}
	return &StopError{Err: ErrLeaseLost, Detail: detail}
}
