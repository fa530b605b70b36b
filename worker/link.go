package worker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// ackMost is how long an acknowledgement that was asked for may wait: less than the first
// wire.ResendWait, after which the coordinator sends its frame again.
const ackMost = 100 * time.Millisecond

var (
	errUnacknowledged = errors.New("the coordinator did not acknowledge a frame in time")
	errUnclosedGap    = errors.New("the coordinator did not resend a missing frame")
)

// link keeps the order of the frames of a session, in both directions (W6, W7). Frames that this
// side sends are numbered, and kept until the coordinator has acknowledged them. Frames that arrive
// are processed once and in order. A link is guarded by Worker.mu.
//
// A link has no timer of its own. The writer sets one timer while something waits; see due.
type link struct {
	// next is the seq of the next frame that this side sends with a seq.
	next uint64
	// unacked are the sent frames that were not acknowledged, oldest first, without a gap in their
	// seq.
	unacked []unackedFrame
	// resend says when the first frame of unacked is sent again.
	resend retryTimer
	// resendAll: the coordinator wants all frames of unacked again.
	resendAll bool

	// lastSeq is the seq of the last frame that was processed in order, and lastID is the id of
	// that frame. ackSent: that frame was acknowledged. ackRequested: it must be acknowledged even
	// if there is nothing else to send.
	lastSeq      uint64
	lastID       string
	ackSent      bool
	ackRequested bool
	// ackRequestedAt is when ackRequested was set.
	ackRequestedAt time.Time
	gap            gap
}

// unackedFrame is a frame that may have to be sent again.
type unackedFrame struct {
	frame *lessorv1.SessionRequest
	// at is when the frame was sent first.
	at time.Time
}

// retryTimer counts how often something was tried, and says when it is due again.
type retryTimer struct {
	tries int
	due   time.Time
}

// start begins to wait, for the answer to something that was sent at the given time.
func (r *retryTimer) start(at time.Time) { *r = retryTimer{due: at.Add(wire.ResendWait(0))} }

// next counts one more try.
func (r *retryTimer) next(now time.Time) {
	r.tries++
	r.due = now.Add(wire.ResendWait(r.tries))
}

// gap describes a frame of the coordinator that is missing; the zero gap means that none is.
type gap struct {
	// open: the frame after link.lastSeq is missing.
	open bool
	// highest is the highest seq of the frames that were dropped because of the gap.
	highest uint64
	// unreported: the coordinator must be told of the gap. detectedBy is the id of the frame that
	// showed the gap.
	unreported bool
	detectedBy string
	// resend says when to ask for the missing frame again.
	resend retryTimer
}

// track gives a frame its seq and keeps it until it is acknowledged.
func (l *link) track(f *lessorv1.SessionRequest, now time.Time) {
	f.Seq = l.next
	l.next++
	if len(l.unacked) == 0 {
		l.resend.start(now)
	}
	l.unacked = append(l.unacked, unackedFrame{frame: f, at: now})
}

// acknowledged removes the frame with the given id and all frames before it, because the
// coordinator accepts frames only in order. It reports whether the timer for resends must be set
// again.
func (l *link) acknowledged(id string) (changed bool) {
	if id == "" {
		return false
	}
	for i := range l.unacked {
		if l.unacked[i].frame.GetId() == id {
			return l.forget(i + 1)
		}
	}
	return false
}

// forget removes the first n frames of unacked.
func (l *link) forget(n int) (changed bool) {
	changed = n > 0 && l.resend.tries > 0
	l.unacked = slices.Delete(l.unacked, 0, n)
	if n > 0 && len(l.unacked) > 0 {
		l.resend.start(l.unacked[0].at)
	}
	return changed
}

// resendRequested notes that the coordinator misses the frame with the given seq. So it has
// received all frames before that one.
func (l *link) resendRequested(seq uint64) {
	if len(l.unacked) == 0 || seq < l.unacked[0].frame.GetSeq() || seq >= l.next {
		return // an old request: the frame was acknowledged meanwhile
	}
	l.forget(int(seq - l.unacked[0].frame.GetSeq()))
	l.resendAll = true
}

// order says what to do with a frame of the coordinator.
type order int

const (
	// inOrder: process it.
	inOrder order = iota
	// duplicate: it was processed before; acknowledge it again and do nothing else.
	duplicate
	// early: a frame before it is missing; drop it.
	early
)

// classify says whether a frame of the coordinator is in order, a duplicate or early, and updates
// the link.
func (l *link) classify(f *lessorv1.SessionResponse, now time.Time) order {
	seq := f.GetSeq()
	switch {
	case seq == 0: // not sequenced: it closes no gap, and acknowledges nothing unless it asks
		if f.GetAck().GetRequest() {
			l.lastID, l.ackSent = f.GetId(), false
		}
		l.noteAckRequest(f, now)
		return inOrder
	case seq <= l.lastSeq:
		l.ackSent = false
		l.noteAckRequest(f, now)
		return duplicate
	case seq > l.lastSeq+1:
		l.noteGap(f, now)
		return early
	}
	l.lastSeq, l.lastID, l.ackSent, l.gap = seq, f.GetId(), false, gap{}
	l.noteAckRequest(f, now)
	return inOrder
}

func (l *link) noteAckRequest(f *lessorv1.SessionResponse, now time.Time) {
	if f.GetAck().GetRequest() && !l.ackRequested {
		l.ackRequested, l.ackRequestedAt = true, now
	}
}

// ackMayWait reports whether an acknowledgement that was asked for may still wait.
func (l *link) ackMayWait(now time.Time) bool {
	return l.ackRequested && now.Sub(l.ackRequestedAt) < ackMost
}

// noteGap notes that a frame came early. Each gap is reported once, and again if a frame comes for
// the second time: then the frames that the coordinator resent did not close the gap.
func (l *link) noteGap(f *lessorv1.SessionResponse, now time.Time) {
	if !l.gap.open {
		l.gap.resend.start(now)
	}
	if !l.gap.open || f.GetSeq() <= l.gap.highest {
		l.gap.unreported, l.gap.detectedBy = true, f.GetId()
	}
	l.gap.open, l.gap.highest = true, max(l.gap.highest, f.GetSeq())
}

// due returns when the link next has to resend a frame or ask for one; waits is false if it does
// not have to.
func (l *link) due() (at time.Time, waits bool) {
	if len(l.unacked) > 0 {
		at, waits = l.resend.due, true
	}
	if l.gap.open && (!waits || l.gap.resend.due.Before(at)) {
		at, waits = l.gap.resend.due, true
	}
	return at, waits
}

// resends returns the frames to send again now: all that the coordinator asked for, or else the
// oldest one if it has waited too long. The error means that the stream is broken.
func (l *link) resends(now time.Time) (frames []*lessorv1.SessionRequest, err error) {
	if l.resendAll {
		l.resendAll = false
		for _, k := range l.unacked {
			l.clearClosedGapRequest(k.frame)
			frames = append(frames, k.frame)
		}
	} else if len(l.unacked) > 0 && !now.Before(l.resend.due) {
		l.clearClosedGapRequest(l.unacked[0].frame)
		frames = append(frames, l.unacked[0].frame)
	}
	if len(frames) == 0 {
		return nil, nil
	}
	if l.resend.tries >= wire.ResendTries {
		return nil, errUnacknowledged
	}
	l.resend.next(now)
	frames[len(frames)-1].Ack = &lessorv1.Ack{Request: true}
	return frames, nil
}

// gapRequest returns the error frame that asks the coordinator for a missing frame, for the first
// time or again; nil if no request is due. Call it right before sending, because the missing frame
// may have arrived meanwhile.
func (l *link) gapRequest(now time.Time) (*lessorv1.SessionRequest, error) {
	switch {
	case !l.gap.open, !l.gap.unreported && now.Before(l.gap.resend.due):
		return nil, nil
	case l.gap.unreported:
		l.gap.unreported = false
	case l.gap.resend.tries >= wire.ResendTries:
		return nil, errUnclosedGap
	default:
		l.gap.resend.next(now)
	}
	return &lessorv1.SessionRequest{Corr: l.gap.detectedBy, Payload: &lessorv1.SessionRequest_Error{Error: &lessorv1.Error{
		Code:        codeSeqGap,
		Message:     fmt.Sprintf("the frame with seq %d is missing", l.lastSeq+1),
		ExpectedSeq: l.lastSeq + 1,
	}}}, nil
}

// clearClosedGapRequest removes the payload of a frame that asks for a missing frame, if the
// missing frame has arrived since. The frame itself is still sent, because the coordinator needs a
// frame with its seq.
func (l *link) clearClosedGapRequest(f *lessorv1.SessionRequest) {
	if e := f.GetError(); e.GetCode() == codeSeqGap && e.GetExpectedSeq() <= l.lastSeq {
		f.Payload = nil
	}
}

// acknowledge adds a pending acknowledgement to the first of the frames. If there are no frames, it
// adds a frame for it, but only if the coordinator waits for the acknowledgement. An
// acknowledgement also covers all frames before the acknowledged one.
func (l *link) acknowledge(frames []*lessorv1.SessionRequest) []*lessorv1.SessionRequest {
	if l.lastID == "" || l.ackSent || (len(frames) == 0 && !l.ackRequested) {
		return frames
	}
	if len(frames) == 0 {
		frames = append(frames, &lessorv1.SessionRequest{})
	}
	if frames[0].Ack == nil {
		frames[0].Ack = &lessorv1.Ack{}
	}
	frames[0].Ack.For = l.lastID
	l.ackSent, l.ackRequested = true, false
	return frames
}
