package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// transitWindow is how long at least an answer is used to compare the clocks of both sides; it may
// be used for twice as long. If the coordinator's clock was set, the estimate is correct again
// after that time.
const transitWindow = time.Minute

// transit estimates an upper bound for how long a frame of the coordinator was in transit, even if
// the clocks of both sides differ. The coordinator cannot have sent an answer before this side sent
// the question; that limits how far its clock can be ahead. The bound is valid only if neither
// clock was set meanwhile. So it may be a reason to ask the coordinator, but never decides by
// itself.
type transit struct {
	// origin is the time from which this side counts, by its monotonic clock.
	origin time.Time
	// ahead and previousAhead are upper bounds for how far the coordinator's clock is ahead of the
	// clock of this side, from this window and the last one.
	ahead, previousAhead time.Duration
	windowStart          time.Time // when this window began
	measured             bool
}

// observe updates the bounds from an answer that the coordinator sent at ts, to a question that
// this side asked at the time asked.
func (t *transit) observe(asked, now time.Time, ts *timestamppb.Timestamp) {
	if ts == nil {
		return
	}
	if t.origin.IsZero() {
		t.origin = asked
	}
	ahead := ts.AsTime().Sub(t.origin) - asked.Sub(t.origin)
	switch {
	case !t.measured:
		t.measured, t.windowStart, t.ahead, t.previousAhead = true, now, ahead, ahead
	case now.Sub(t.windowStart) >= transitWindow:
		t.windowStart, t.previousAhead, t.ahead = now, t.ahead, ahead
	default:
		t.ahead = min(t.ahead, ahead)
	}
}

// longest returns the longest time that a frame which was sent at ts and arrived now can have been
// in transit; 0 if there was no answer yet.
func (t *transit) longest(now time.Time, ts *timestamppb.Timestamp) time.Duration {
	if !t.measured || ts == nil {
		return 0
	}
	sent := ts.AsTime().Sub(t.origin) - min(t.ahead, t.previousAhead)
	return max(now.Sub(t.origin)-sent, 0)
}
