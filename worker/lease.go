package worker

import "time"

// lease is how long one attempt may believe in its authority, counted on this process's monotonic clock (A8).
//
// The coordinator sends spans, not times. A span that answers a request of ours is counted from before that request, and
// so can only be too short. The span in a dispatch answers nothing: it is counted from its receipt, is too long by
// the time that the frame was under way, and is therefore forgotten at the first answer. No handler begins on the word of a
// dispatch that has become old: the coordinator may have given the task to another worker since.
type lease struct {
	deadline time.Time
	answered bool
	// staleAt is when the dispatch has become old.
	staleAt time.Time
}

// grantedLease is the lease of a dispatch received at the given time; ttl is how long it was when it was granted, underWay the longest that the
// dispatch can have taken.
func grantedLease(received time.Time, in, ttl, maxTransit time.Duration) lease {
	age := ttl - in + maxTransit
	return lease{deadline: received.Add(in), staleAt: received.Add(min(ttl/4, staleDispatchAge) - age)}
}

// mustConfirm reports whether the lease rests on an old dispatch alone.
func (l *lease) mustConfirm(now time.Time) bool { return !l.answered && now.After(l.staleAt) }

// renew takes in an answer to a request that was made at the given time.
func (l *lease) renew(asked time.Time, in time.Duration) {
	deadline := asked.Add(in)
	if !l.answered || deadline.After(l.deadline) {
		l.deadline = deadline
	}
	l.answered = true
}

// left is the time until the deadline; the lease is live while it is positive (A3: equality is expired).
func (l *lease) left(now time.Time) time.Duration { return l.deadline.Sub(now) }
