package session

import (
	"math/rand/v2"
	"time"
)

// Resends of W6.
const (
	resendBase  = 200 * time.Millisecond // before the first; each further wait is twice as long
	resendMost  = 5 * time.Second
	resendTries = 6
)

// resendWait returns how long to wait for an acknowledgement after the given number of resends. The jitter only lengthens the wait: a repeat does not
// help a worker that is merely slow.
func resendWait(tries int) time.Duration {
	least := leastWait(tries)
	return least + rand.N(least/4+1)
}

func leastWait(tries int) time.Duration { return min(resendBase<<tries, resendMost*4/5) }

// resends sends the oldest frame that asks for an acknowledgement again while none comes. Its timer runs only while there is such a frame. It is
// guarded by outbox.mu.
type resends struct {
	// reliable is set once the worker has shown that it acknowledges. To one that types its frames by hand a repeat would be noise.
	reliable bool
	timer    *time.Timer // nil: it does not run
	long     bool        // the timer was set for a frame that was sent again before
}

// sent notes that a frame which asks for an acknowledgement goes out.
func (r *resends) sent(o *outbox, f *sentFrame) {
	f.at = time.Now()
	if r.timer == nil {
		r.arm(o)
	}
}

// rely notes that the worker does acknowledge frames. From now on frames are sent again, also those that went out before.
func (r *resends) rely(o *outbox) {
	if !r.reliable {
		r.reliable = true
		r.arm(o)
	}
}

func (r *resends) arm(o *outbox) {
	r.timer = nil
	if !r.reliable {
		return
	}
	if f := o.sent.waits(); f != nil {
		r.long = f.tries > 0
		r.timer = time.AfterFunc(time.Until(f.at.Add(resendWait(f.tries))), o.resend)
	}
}

// acknowledged sets the timer anew if it is set for later than the next frame needs, because the frame before had to be sent again and again.
func (r *resends) acknowledged(o *outbox) {
	if r.long && r.timer != nil && r.timer.Stop() {
		r.arm(o)
	}
}

func (r *resends) stop() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// resend is what the timer does. The frame that it was set for may have been acknowledged since, then it is set for the next one: as long as no frame
// has to be sent again, that costs less than to set it with each acknowledgement.
func (o *outbox) resend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resends.timer = nil
	if o.closed {
		return // the next stream sends all again
	}
	f := o.sent.waits()
	if f == nil {
		return
	}
	if time.Since(f.at) < leastWait(f.tries) {
		o.resends.arm(o)
		return
	}
	f.tries++
	o.again = append(o.again, f)
	o.wake()
}

// acknowledged takes the worker's acknowledgement of a frame, which stands for all before it (W6). It returns the leases of the dispatches
// that were not acknowledged before: of those before it, and of itself.
func (o *outbox) acknowledged(id string) acks {
	o.mu.Lock()
	defer o.mu.Unlock()
	seq := seqOf(id)
	if seq == 0 || seq > o.sent.last {
		return acks{}
	}
	o.sent.acknowledged(seq)
	o.resends.rely(o)
	o.resends.acknowledged(o)
	return o.unacked.take(seq)
}

// resendFrom sends the frame with the given seq and all frames after it again (W7). ok is false if one of them is gone. If the worker has acknowledged
// that frame, there is nothing to do: the frame has arrived since it was asked for.
func (o *outbox) resendFrom(seq uint64) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq != 0 && seq <= o.sent.acked {
		return true
	}
	frames, ok := o.sent.from(seq)
	if ok {
		o.again = frames
		o.wake()
	}
	return ok
}
