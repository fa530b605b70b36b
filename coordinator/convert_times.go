package coordinator

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/lease"
)

// times makes timestamps and durations of what is told at one moment. A frame has several for each of its items: these are cut from two pieces of
// memory, as far as they reach.
type times struct {
	now    lease.Now
	stamps []timestamppb.Timestamp
	spans  []durationpb.Duration
}

// newTimes has room for so many of each.
func newTimes(now lease.Now, stamps, spans int) *times {
	return &times{now, make([]timestamppb.Timestamp, stamps), make([]durationpb.Duration, spans)}
}

// stamp is absent for no time.
func (t *times) stamp(w lease.Wall) *timestamppb.Timestamp {
	if w == 0 {
		return nil
	}
	at, m := w.Time(), cut(&t.stamps)
	m.Seconds, m.Nanos = at.Unix(), int32(at.Nanosecond())
	return m
}

// stampAt is stamp for an instant of the serving clock.
func (t *times) stampAt(i lease.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	return t.stamp(t.now.WallAt(i))
}

// span is absent for 0.
func (t *times) span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return t.exact(d)
}

// left is the time from now to i, at least 0; absent for no time.
func (t *times) left(i lease.Instant) *durationpb.Duration {
	if i == 0 {
		return nil
	}
	return t.exact(max(0, i.Sub(t.now.Serving)))
}

func (t *times) exact(d time.Duration) *durationpb.Duration {
	m := cut(&t.spans)
	m.Seconds, m.Nanos = int64(d/time.Second), int32(d%time.Second)
	return m
}

// cut takes one off a piece, or makes one where it is used up.
func cut[T any](piece *[]T) *T {
	if len(*piece) == 0 {
		return new(T)
	}
	one := &(*piece)[0]
	*piece = (*piece)[1:]
	return one
}
