package session

import (
	"slices"
	"strconv"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of what a session retains of the frames that it sent (W7). Older ones are forgotten, so that a worker that never acknowledges
// blocks nothing.
const (
	maxRetained      = 256
	maxRetainedBytes = 1 << 20
	retainedSize     = 128 // bytes that a frame counts as, beside what it holds
)

// sentFrame is a frame as it can be sent again: its number, and how to make the rest anew, with the times of that moment.
type sentFrame struct {
	seq    uint64
	make   func(now lease.Now) *lessorv1.SessionResponse // nil for a dispatch
	leases []handedLease                                 // of a dispatch; those that still live are handed over again
	asks   bool                                          // for an acknowledgement
	bytes  int
	tries  int       // resends so far
	at     time.Time // when it was sent last; of one that asks
}

// id names the frame. It tells the seq, so that an acknowledgement needs no look-up.
func (f *sentFrame) id() string {
	kind := "c"
	if f.leases != nil {
		kind = "d"
	}
	return kind + strconv.FormatUint(f.seq, 10)
}

// seqOf reads an id of sentFrame; 0 for anything else.
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

// retained are the frames that were sent and not acknowledged, oldest first, without a gap in their seq.
type retained struct {
	frames []*sentFrame
	last   uint64 // seq of the newest frame
	acked  uint64 // seq of the newest frame that was acknowledged; 0: none was
	bytes  int
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

// acknowledged forgets all up to a seq.
func (r *retained) acknowledged(seq uint64) {
	r.acked = max(r.acked, min(seq, r.last))
	if len(r.frames) > 0 && seq >= r.frames[0].seq {
		r.drop(int(min(seq, r.last) - r.frames[0].seq + 1))
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

// from are the frames from a seq on; ok is false where one of them is gone, or was never sent.
func (r *retained) from(seq uint64) (frames []*sentFrame, ok bool) {
	first := r.last - uint64(len(r.frames)) + 1
	if seq < first || seq > r.last+1 {
		return nil, false
	}
	return slices.Clone(r.frames[seq-first:]), true
}

// waits finds the oldest frame that asks for an acknowledgement and may be sent once more; nil: none.
func (r *retained) waits() *sentFrame {
	for _, f := range r.frames {
		if f.asks && f.tries < resendTries {
			return f
		}
	}
	return nil
}
