package session

import (
	"time"

	"github.com/lessor-dev/lessor/internal/wire"
)

// resends is the timer with which retained sends the oldest frame that asks for an acknowledgement
// again until the acknowledgement comes. It runs only while there is such a frame.
type resends struct {
	// reliable is true if the worker has acknowledged a frame, or uses seq. No frame is sent again
	// before: to a person who types frames by hand, repeats would only be noise.
	reliable bool
	timer    *time.Timer // nil: it does not run
	long     bool        // the timer was set for a frame that was sent again before
	fired    func()      // what the timer calls: outbox.resend
}

// sending notes that a frame that asks for an acknowledgement is sent now.
func (r *retained) sending(f *sentFrame) {
	f.at = time.Now()
	if r.timer == nil {
		r.arm()
	}
}

// setReliable notes that the worker acknowledges frames. From now on unacknowledged frames are sent
// again, also those that were sent before.
func (r *retained) setReliable() {
	if !r.reliable {
		r.reliable = true
		r.arm()
	}
}

func (r *retained) arm() {
	r.timer = nil
	if !r.reliable {
		return
	}
	if f := r.oldestUnacked(); f != nil {
		r.long = f.tries > 0
		r.timer = time.AfterFunc(time.Until(f.at.Add(wire.ResendWait(f.tries))), r.fired)
	}
}

// resendOverdue arranges that the frame whose acknowledgement is overdue is sent again. If the
// frame for which the timer was set is acknowledged by now, it sets the timer for the next frame
// and returns false: as long as no frame has to be sent again, that costs less than resetting the
// timer with each acknowledgement.
func (r *retained) resendOverdue() bool {
	f := r.oldestUnacked()
	if f == nil {
		return false
	}
	if time.Since(f.at) < wire.LeastResendWait(f.tries) {
		r.arm()
		return false
	}
	f.tries++
	r.toResend = append(r.toResend, f)
	return true
}

// resend is called by the timer of resends.
func (o *outbox) resend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent.timer = nil
	if !o.closed && o.sent.resendOverdue() { // if it is closed, the next stream sends all retained frames again
		o.wake()
	}
}

// acknowledged handles the worker's acknowledgement of a frame, which also acknowledges all frames
// before it (W6). It returns the leases of the dispatches that this acknowledges: those of the
// frame itself, and those of earlier frames.
func (o *outbox) acknowledged(id string) acks {
	o.mu.Lock()
	defer o.mu.Unlock()
	seq := seqOf(id)
	if seq == 0 || seq > o.sent.last {
		return acks{}
	}
	o.sent.acknowledged(seq)
	return o.unacked.take(seq)
}

// takeUnacked returns the leases that are not acknowledged of the dispatches up to the given seq. A
// worker that resumes its session acknowledges them by saying that it has these frames (W8): its
// own acknowledgement may have been lost with the stream before, and they are not sent again.
func (o *outbox) takeUnacked(seq uint64) []handedLease {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.unacked.take(seq)
	return append(a.before, a.named...)
}

// putBack takes leases back whose acknowledgement was read, but could not be passed on. Their
// frames are not sent again, so the worker does not acknowledge them again: takeUnacked finds them
// for the next stream of the session.
func (o *outbox) putBack(leases []handedLease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.forgotten {
		o.unacked.putBack(leases)
	}
}

// nextSeq returns the seq of the next new frame.
func (o *outbox) nextSeq() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent.last + 1
}

// resendFrom sends the frame with the given seq and all frames after it again (W7). ok is false if
// one of them is not retained any more. If the worker has acknowledged that frame, resendFrom does
// nothing: the frame arrived after the worker asked for it. seq is at most nextSeq.
func (o *outbox) resendFrom(seq uint64) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq <= o.sent.acked {
		return true
	}
	if ok = o.sent.resendFrom(seq); ok {
		o.wake()
	}
	return ok
}
