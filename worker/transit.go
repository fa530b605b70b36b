package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// transitWindow is how long an answer tells at least about the clocks of both sides; it may tell for twice as long. A clock of the coordinator
// that was set is believed again after that.
const transitWindow = time.Minute

// transit bounds how long a frame of the coordinator was under way, whatever its clock says: the answer to a question of ours cannot have been sent
// previousAhead the question, which bounds how far the two clocks are apart. What is said of a frame holds as long as neither clock was set meanwhile,
// so that it may raise a doubt, and must not decide.
type transit struct {
	// origin is where the monotonic clock of this side counts from.
	origin time.Time
	// ahead and before are the bounds of this window and the last one: the coordinator's clock is ahead of ours by that at most.
	ahead, previousAhead time.Duration
	windowStart          time.Time // the window
	known                bool
}

// observe takes in the answer, sent at ts, to a question that was asked at a time of ours.
func (t *transit) observe(asked, now time.Time, ts *timestamppb.Timestamp) {
	if ts == nil {
		return
	}
	if t.origin.IsZero() {
		t.origin = asked
	}
	ahead := ts.AsTime().Sub(t.origin) - asked.Sub(t.origin)
	switch {
	case !t.known:
		t.known, t.windowStart, t.ahead, t.previousAhead = true, now, ahead, ahead
	case now.Sub(t.windowStart) >= transitWindow:
		t.windowStart, t.previousAhead, t.ahead = now, t.ahead, ahead
	default:
		t.ahead = min(t.ahead, ahead)
	}
}

// longest is the longest that a frame which was sent at ts and has come now can have been under way; 0 while nothing was answered yet.
func (t *transit) longest(now time.Time, ts *timestamppb.Timestamp) time.Duration {
	if !t.known || ts == nil {
		return 0
	}
	sent := ts.AsTime().Sub(t.origin) - min(t.ahead, t.previousAhead)
	return max(now.Sub(t.origin)-sent, 0)
}
