package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/lease"
)

// Times makes the timestamps and durations of the messages that are sent at one moment. Each item
// of a frame has several, and most of them are equal for all items, so the items share these
// messages. Nobody may change a shared message.
type Times struct {
	Now    lease.Now
	stamps shared[lease.Wall, timestamppb.Timestamp]
	spans  shared[time.Duration, durationpb.Duration]
}

// shared is a cache of the last few messages that were made for one kind of time.
type shared[T comparable, M any] struct {
	of   [8]T // more than an item has
	made [8]*M
	next int // index of the oldest
}

// get returns the message for a time. If isNew, the caller has to fill it in.
func (s *shared[T, M]) get(of T) (m *M, isNew bool) {
	for i := range s.of {
		if s.of[i] == of && s.made[i] != nil {
			return s.made[i], false
		}
	}
	m = new(M)
	s.of[s.next], s.made[s.next] = of, m
	s.next = (s.next + 1) % len(s.of)
	return m, true
}

// Stamp returns the timestamp of w, or nil if w is 0.
func (t *Times) Stamp(w lease.Wall) *timestamppb.Timestamp {
	if w == 0 {
		return nil
	}
	m, isNew := t.stamps.get(w)
	if isNew {
		at := w.Time()
		m.Seconds, m.Nanos = at.Unix(), int32(at.Nanosecond())
	}
	return m
}

// StampAt is Stamp for an instant of the serving clock.
func (t *Times) StampAt(i lease.Instant) *timestamppb.Timestamp {
	if i == 0 {
		return nil
	}
	return t.Stamp(t.Now.WallAt(i))
}

// Span returns the duration message for d, or nil if d is 0.
func (t *Times) Span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return t.exact(d)
}

// Left returns the time from now to i, at least 0, or nil if i is 0.
func (t *Times) Left(i lease.Instant) *durationpb.Duration {
	if i == 0 {
		return nil
	}
	return t.exact(max(0, i.Sub(t.Now.Serving)))
}

func (t *Times) exact(d time.Duration) *durationpb.Duration {
	m, isNew := t.spans.get(d)
	if isNew {
		m.Seconds, m.Nanos = int64(d/time.Second), int32(d%time.Second)
	}
	return m
}
