package worker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Resends of W6.
const (
	// resendBase is the first wait for an acknowledgement; each further one is twice as long.
	resendBase = 200 * time.Millisecond
	// resendMost is the longest wait.
	resendMost = 5 * time.Second
	// resendTries is how often a frame is sent again before the stream counts as broken.
	resendTries = 6
)

// codeSeqGap: a frame is missing before the one that came (W7).
const codeSeqGap = "E.RESULT.SEQ_GAP"

var (
	errUnacknowledged = errors.New("the coordinator did not acknowledge a frame in time")
	errUnclosedGap    = errors.New("the coordinator did not resend a missing frame")
)

// link is the order of the frames of a session, in both directions (W6, W7). What goes out is numbered, and kept until the
// coordinator has acknowledged it; what comes in is taken once and in order. It is guarded by Worker.mu.
//
// There is no timer but the one that the writer sets while something waits, see due.
type link struct {
	// next is the seq of our next sequenced frame.
	next uint64
	// kept are our frames that were not acknowledged, oldest first, without a gap in their seq.
	kept []keptFrame
	// oldest says when the first of kept goes out again.
	oldest retry
	// from is the seq from which on the coordinator wants all frames again; 0: it wants none.
	from uint64

	// taken is the seq of the newest frame that was taken from the coordinator, and newest is its id. told: newest was
	// acknowledged. asked: it must be acknowledged even if there is nothing else to send.
	taken  uint64
	newest string
	told   bool
	asked  bool
	gap    gap
}

// keptFrame is a frame that may have to be sent again.
type keptFrame struct {
	frame *lessorv1.SessionRequest
	// at is when it was sent first.
	at time.Time
}

// retry is how often something was tried, and when it is due again.
type retry struct {
	tries int
	due   time.Time
}

// start begins to wait for what was done at the given time.
func (r *retry) start(at time.Time) { *r = retry{due: at.Add(resendWait(0))} }

// again counts one more try.
func (r *retry) again(now time.Time) {
	r.tries++
	r.due = now.Add(resendWait(r.tries))
}

// resendWait is how long to wait for an acknowledgement after so many resends. The jitter only lengthens it: what is
// merely slow is not helped by a repeat.
func resendWait(tries int) time.Duration {
	span := min(resendBase<<min(tries, 10), resendMost*4/5)
	return span + rand.N(span/4+1)
}

// gap is a frame that is missing, while it is.
type gap struct {
	// open: the frame after link.taken is missing.
	open bool
	// highest is the seq of the newest frame that was dropped because of it.
	highest uint64
	// tell: the coordinator has to be told, and shownBy is the frame that showed the gap.
	tell    bool
	shownBy string
	// repeat is when to ask for the frame once more.
	repeat retry
}

// keep numbers a frame and holds it until it is acknowledged.
func (l *link) keep(f *lessorv1.SessionRequest, now time.Time) {
	f.Seq = l.next
	l.next++
	if len(l.kept) == 0 {
		l.oldest.start(now)
	}
	l.kept = append(l.kept, keptFrame{frame: f, at: now})
}

// acknowledged forgets the frame with the given id and all frames before it, because the coordinator takes frames only in order. It
// reports whether the timer for resends must be set anew.
func (l *link) acknowledged(id string) (changed bool) {
	if id == "" {
		return false
	}
	for i := range l.kept {
		if l.kept[i].frame.GetId() == id {
			return l.forget(i + 1)
		}
	}
	return false
}

// forget drops the first n frames.
func (l *link) forget(n int) (changed bool) {
	changed = n > 0 && l.oldest.tries > 0
	l.kept = slices.Delete(l.kept, 0, n)
	if n > 0 && len(l.kept) > 0 {
		l.oldest.start(l.kept[0].at)
	}
	return changed
}

// wanted notes that the coordinator misses the frame with the given seq, and thus has all frames before it.
func (l *link) wanted(seq uint64) {
	if len(l.kept) == 0 || seq < l.kept[0].frame.GetSeq() || seq >= l.next {
		return // an old word: what it asks for was acknowledged since
	}
	l.forget(int(seq - l.kept[0].frame.GetSeq()))
	l.from = seq
}

// order says what to do with a frame of the coordinator.
type order int

const (
	// inOrder: take it.
	inOrder order = iota
	// repeated: it was taken before; acknowledge it and do nothing.
	repeated
	// early: one before it is missing; drop it.
	early
)

// judge puts a frame of the coordinator into its order.
func (l *link) judge(f *lessorv1.SessionResponse, now time.Time) order {
	seq := f.GetSeq()
	switch {
	case seq == 0: // not sequenced
		seq = l.taken
	case seq <= l.taken:
		l.told, l.asked = false, l.asked || f.GetAck().GetRequest()
		return repeated
	case seq > l.taken+1:
		l.miss(f, now)
		return early
	}
	l.taken, l.newest, l.told, l.gap = seq, f.GetId(), false, gap{}
	l.asked = l.asked || f.GetAck().GetRequest()
	return inOrder
}

// miss notes that a frame came early. Each gap is told once, and again where a frame comes for the second time: then what
// was sent again did not close it.
func (l *link) miss(f *lessorv1.SessionResponse, now time.Time) {
	if !l.gap.open {
		l.gap.repeat.start(now)
	}
	if !l.gap.open || f.GetSeq() <= l.gap.highest {
		l.gap.tell, l.gap.shownBy = true, f.GetId()
	}
	l.gap.open, l.gap.highest = true, max(l.gap.highest, f.GetSeq())
}

// due is when the link has to do something by itself; false: nothing waits.
func (l *link) due() (at time.Time, waits bool) {
	if len(l.kept) > 0 {
		at, waits = l.oldest.due, true
	}
	if l.gap.open && (!waits || l.gap.repeat.due.Before(at)) {
		at, waits = l.gap.repeat.due, true
	}
	return at, waits
}

// resends are the frames that go out again now: all that the coordinator asked for, or the oldest where it has waited for
// too long. An error says that the stream is broken.
func (l *link) resends(now time.Time) (frames []*lessorv1.SessionRequest, err error) {
	if l.from != 0 {
		l.from = 0
		for _, k := range l.kept {
			l.empty(k.frame)
			frames = append(frames, k.frame)
		}
	} else if len(l.kept) > 0 && !now.Before(l.oldest.due) {
		l.empty(l.kept[0].frame)
		frames = append(frames, l.kept[0].frame)
	}
	if len(frames) == 0 {
		return nil, nil
	}
	if l.oldest.tries >= resendTries {
		return nil, errUnacknowledged
	}
	l.oldest.again(now)
	frames[len(frames)-1].Ack = &lessorv1.Ack{Request: true}
	return frames, nil
}

// asks returns the error frame that asks the coordinator for a missing frame, for the first time or once more; nil if that is not due.
// It is made right before it is sent, because the missing frame may have come meanwhile.
func (l *link) asks(now time.Time) (*lessorv1.SessionRequest, error) {
	switch {
	case !l.gap.open, !l.gap.tell && now.Before(l.gap.repeat.due):
		return nil, nil
	case l.gap.tell:
		l.gap.tell = false
	case l.gap.repeat.tries >= resendTries:
		return nil, errUnclosedGap
	default:
		l.gap.repeat.again(now)
	}
	return &lessorv1.SessionRequest{Corr: l.gap.shownBy, Payload: &lessorv1.SessionRequest_Error{Error: &lessorv1.Error{
		Code:        codeSeqGap,
		Message:     fmt.Sprintf("the frame with seq %d is missing", l.taken+1),
		ExpectedSeq: l.taken + 1,
	}}}, nil
}

// empty removes the payload of a frame of ours that says that a frame is missing, if that frame has come since. The frame itself is
// still sent, because its seq must be filled.
func (l *link) empty(f *lessorv1.SessionRequest) {
	if e := f.GetError(); e.GetCode() == codeSeqGap && e.GetExpectedSeq() <= l.taken {
		f.Payload = nil
	}
}

// acknowledge puts the acknowledgement that is due on the first of the frames, or on a frame of its own if the coordinator waits for it.
// It stands for all frames before the acknowledged one, too.
func (l *link) acknowledge(frames []*lessorv1.SessionRequest) []*lessorv1.SessionRequest {
	if l.newest == "" || l.told || (len(frames) == 0 && !l.asked) {
		return frames
	}
	if len(frames) == 0 {
		frames = append(frames, &lessorv1.SessionRequest{})
	}
	if frames[0].Ack == nil {
		frames[0].Ack = &lessorv1.Ack{}
	}
	frames[0].Ack.For = l.newest
	l.told, l.asked = true, false
	return frames
}
