package session

import (
	"slices"
	"strconv"
	"time"

	"github.com/lessor-dev/lessor/internal/wire"
)

// Bounds of the sent frames that a session retains (W7). It drops the oldest frames beyond them, so
// that a worker that never acknowledges blocks nothing.
var (
	maxRetained      = 256
	maxRetainedBytes = 1 << 20
)

const retainedSize = 128 // bytes that a frame is counted as, in addition to its content

// sentFrame is a frame that can be sent again: its seq, and what is needed to make the rest again,
// with the times of that moment.
type sentFrame struct {
	seq      uint64
	make     frameMaker    // nil for a dispatch
	leases   []handedLease // of a dispatch; those that are still live are dispatched again
	wantsAck bool          // it asks for an acknowledgement
	bytes    int
	tries    int       // resends so far
	at       time.Time // when it was sent last; only if wantsAck
}

// id returns the id of the frame. It contains the seq, so that an acknowledgement needs no look-up.
func (f *sentFrame) id() string {
	kind := "c"
	if f.leases != nil {
		kind = "d"
	}
	return kind + strconv.FormatUint(f.seq, 10)
}

// seqOf returns the seq in an id that sentFrame.id made; 0 for anything else.
func seqOf(id string) uint64 {
	if len(id) < 2 || id[0] != 'c' && id[0] != 'd' {
		return 0
	}
	seq, err := strconv.ParseUint(id[1:], 10, 64)
	if err != nil {
		return 0
	}
	return seq
}

// retained holds the sent frames that are not acknowledged, oldest first, without a gap in their
// seq. outbox.mu guards it.
type retained struct {
	frames []*sentFrame
	last   uint64 // seq of the newest frame
	acked  uint64 // seq of the newest frame that was acknowledged; 0: none was
	bytes  int

	toResend []*sentFrame // frames to send again, before all other frames
	resends
}

// add numbers a frame and keeps it.
func (r *retained) add(f *sentFrame) {
	r.last++
	f.seq = r.last
	f.bytes += retainedSize
	r.frames = append(r.frames, f)
	r.bytes += f.bytes
	for len(r.frames) > maxRetained || r.bytes > maxRetainedBytes && len(r.frames) > 1 {
		r.drop(1)
	}
}

// acknowledged drops the frames up to the given seq. If the timer was set for the long wait of a
// frame that was sent again, acknowledged sets it again, because the next frame needs a shorter
// wait.
func (r *retained) acknowledged(seq uint64) {
	r.acked = max(r.acked, min(seq, r.last))
	if len(r.frames) > 0 && seq >= r.frames[0].seq {
		r.drop(int(min(seq, r.last) - r.frames[0].seq + 1))
	}
	r.setReliable()
	if r.long && r.timer != nil && r.timer.Stop() {
		r.arm()
	}
}

func (r *retained) drop(n int) {
	for i, f := range r.frames[:n] {
		r.bytes -= f.bytes
		r.frames[i] = nil
	}
	if r.frames = r.frames[n:]; len(r.frames) == 0 {
		r.frames = nil
	}
}

// resendFrom arranges that the frames from the given seq on are sent again. ok is false if one of
// them is not retained any more, or was never sent.
func (r *retained) resendFrom(seq uint64) (ok bool) {
	first := r.last - uint64(len(r.frames)) + 1
	if seq < first || seq > r.last+1 {
		return false
	}
	r.toResend = slices.Clone(r.frames[seq-first:])
	return true
}

// oldestUnacked returns the oldest frame that asks for an acknowledgement and may be sent again, or
// nil.
func (r *retained) oldestUnacked() *sentFrame {
	for _, f := range r.frames {
		if f.wantsAck && f.tries < wire.ResendTries {
			return f
		}
	}
	return nil
}
