package worker

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// transitWindow is how long an answer tells at least about the clocks of both sides; it may tell for twice as long. A clock of the coordinator
// that was set is believed again after that.
const transitWindow = time.Minute

// transit bounds how long a frame of the coordinator was under way, whatever its clock says: the answer to a question of ours cannot have been sent
// before the question, which bounds how far the two clocks are apart. What is said of a frame holds as long as neither clock was set meanwhile,
// so that it may raise a doubt, and must not decide.
type transit struct {
	// began is where the monotonic clock of this side counts from.
	began time.Time
	// ahead and before are the bounds of this window and the last one: the coordinator's clock is ahead of ours by that at most.
	ahead, before time.Duration
	opened        time.Time // the window
	known         bool
}

// answered takes in the answer, sent at ts, to a question that was asked at a time of ours.
func (t *transit) answered(asked, now time.Time, ts *timestamppb.Timestamp) {
	if ts == nil {
		return
	}
	if t.began.IsZero() {
		t.began = asked
	}
	ahead := ts.AsTime().Sub(t.began) - asked.Sub(t.began)
	switch {
	case !t.known:
		t.known, t.opened, t.ahead, t.before = true, now, ahead, ahead
	case now.Sub(t.opened) >= transitWindow:
		t.opened, t.before, t.ahead = now, t.ahead, ahead
	default:
		t.ahead = min(t.ahead, ahead)
	}
}

// most is the longest that a frame which was sent at ts and has come now can have been under way; 0 while nothing was answered yet.
func (t *transit) most(now time.Time, ts *timestamppb.Timestamp) time.Duration {
	if !t.known || ts == nil {
		return 0
	}
	sent := ts.AsTime().Sub(t.began) - min(t.ahead, t.before)
	return max(now.Sub(t.began)-sent, 0)
}
