package worker

import (
	"fmt"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// lease is how long one attempt may assume that its lease is live, measured on this process's
// monotonic clock (A8).
//
// The coordinator sends durations, not times. A duration in an answer is counted from before the
// request was sent, so it can only be too short. A duration in a dispatch is counted from its
// arrival, so it is too long by the time that the frame was in transit; the first answer therefore
// replaces it. No handler begins on the basis of a dispatch that is no longer recent: the
// coordinator may have given the task to another worker since.
type lease struct {
	// end is when the lease expires unless it is renewed. answered: it comes from an answer, not
	// from the dispatch.
	end      time.Time
	answered bool
	// limits are the attempt_timeout and the deadline of the task, if it has them: no renewal goes
	// beyond them (A3). But the attempt_timeout does not count the time for which the coordinator
	// was away (A8), so what it has grown to is not known here.
	limits []limit
	// staleAt is when the dispatch counts as no longer recent.
	staleAt time.Time
}

// limit is a time at which a lease ends, renewed or not.
type limit struct {
	// by is the latest time at which it can be, and span how long the dispatch was received before.
	by   time.Time
	span time.Duration
	// isDeadline: it is the deadline of the task, not its attempt_timeout.
	isDeadline bool
}

// String says what is over at the limit.
func (l limit) String() string {
	if l.isDeadline {
		return "the deadline of the task has passed"
	}
	return fmt.Sprintf("the attempt_timeout of %v is over", l.span)
}

// limitsOf returns the limits of an assignment that was received at the given time. The deadline is
// counted from the coordinator's time, so that the clock of this machine does not matter.
func limitsOf(asg *lessorv1.Assignment, received time.Time) (limits []limit) {
	spec := asg.GetTask().GetSpec()
	if span := spec.GetAttemptTimeout().AsDuration(); span > 0 {
		limits = append(limits, limit{by: received.Add(span), span: span})
	}
	if at := spec.GetDeadline(); at != nil && asg.GetServerTime() != nil {
		span := at.AsTime().Sub(asg.GetServerTime().AsTime())
		limits = append(limits, limit{by: received.Add(span), span: span, isDeadline: true})
	}
	return limits
}

// earliest returns the earliest limit; ok is false if there is none.
func (l *lease) earliest() (first limit, ok bool) {
	if len(l.limits) == 0 {
		return limit{}, false
	}
	return slices.MinFunc(l.limits, func(a, b limit) int { return a.by.Compare(b.by) }), true
}

// byDeadline returns when the deadline of the task is at the latest; ok is false if it has none.
func (l *lease) byDeadline() (by time.Time, ok bool) {
	i := slices.IndexFunc(l.limits, func(l limit) bool { return l.isDeadline })
	if i < 0 {
		return time.Time{}, false
	}
	return l.limits[i].by, true
}

// endByDeadline ends the lease by the deadline of the task. The coordinator does, too, but its
// clock may have been set back since the dispatch.
func (l *lease) endByDeadline() {
	if by, ok := l.byDeadline(); ok && l.end.After(by) {
		l.end = by
	}
}

// grantedLease returns the lease of a dispatch that was received at the given time. in is the time
// that the lease had left when the dispatch was sent, length its length when it was granted, and
// maxTransit the longest time that the dispatch can have been in transit.
func grantedLease(received time.Time, in, length, maxTransit time.Duration) lease {
	age := length - in + maxTransit
	return lease{end: received.Add(in), staleAt: received.Add(maxDispatchAge(length) - age)}
}

// maxDispatchAge is the highest age at which a dispatch counts as recent, for a lease of this
// length.
func maxDispatchAge(length time.Duration) time.Duration { return min(length/4, staleDispatchAge) }

// stale reports whether the dispatch is no longer recent, and so alone no evidence for the lease.
func (l *lease) stale(now time.Time) bool { return now.After(l.staleAt) }

// renew updates the lease from the answer to a request that was made at the given time.
func (l *lease) renew(asked time.Time, in time.Duration) {
	end := asked.Add(in)
	if !l.answered || end.After(l.end) {
		l.end = end
		l.endByDeadline()
	}
	l.answered = true
}

// left is the time until the end. The lease is live while it is positive (A3: at its end it is
// expired).
func (l *lease) left(now time.Time) time.Duration { return l.end.Sub(now) }

// expiryError says why the lease has expired.
func (l *lease) expiryError() *StopError {
	if first, ok := l.earliest(); ok && l.end.Add(maxDispatchAge(first.span)).After(first.by) {
		return &StopError{Err: ErrLeaseLost, Reason: lessorv1.Reason_REASON_DEADLINE_EXCEEDED, Detail: first.String()}
	}
	return &StopError{Err: ErrLeaseLost, Detail: "no renewal arrived before the lease expired"}
}
