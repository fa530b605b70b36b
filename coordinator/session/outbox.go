package session

import (
	"log/slog"
	"slices"
	"sync"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of what waits for a worker that reads slowly (W11). Work is bounded by its slots, everything else by these.
const (
	maxHeld    = 4 << 20 // bytes of frames that are being decided, and of answers that wait
	answerSize = 512     // bytes that each answer counts as
)

// outbox holds what is to be sent in a session until the writer of its stream has sent it, and what was sent until the worker acknowledges it. It
// outlives the streams (W8): what one stream has not sent goes out on the next. Frames are made right before they are sent, so that what waits
// together shares frames, and their times are those of the sending.
type outbox struct {
	log        *slog.Logger
	taskTokens convert.Tokens
	backlog    engine.Backlog // of what waits to be sent

	mu      sync.Mutex // guards the rest
	changed *sync.Cond // there may be room for the reader
	stream  *Session   // the stream that sends; nil: none, until the worker comes back
	closed  bool       // the stream takes no more frames of the worker; what is under way is still sent
	held    bool       // nothing is sent yet, because the worker has not registered on this stream
	waiting waiting
	sent    retained
	again   []*sentFrame // frames to be sent again, before everything else
	unacked unacked
	room    int    // bytes reserved for answers that are not sent yet
	newest  string // id of the newest sequenced frame of the worker, to be acknowledged with the next frame; empty: it is acknowledged
	gone    bool   // the session is over for good
	resends resends
	pace    pace
}

// waiting is what the writer finds. Answers go first, so that no work comes before the verdict that made room for it. What is pushed keeps
// its order: a cancel overtakes no dispatch, and no dispatch a cancel.
type waiting struct {
	answers []outgoing
	pushed  []push
}

// push is either leases to hand out, or another frame that the coordinator sends of its own accord.
type push struct {
	granted []engine.Granted
	stale   bool // some of these leases have waited for a stream: they may have been taken back meanwhile, when nobody was there to be told
	frame   *outgoing
}

func (w *waiting) empty() bool { return len(w.answers) == 0 && len(w.pushed) == 0 }

// outgoing is a frame that is made when its turn has come.
type outgoing struct {
	make  func(now lease.Now) *lessorv1.SessionResponse
	bytes int  // reserved room to give back when it is sent
	kept  int  // bytes that it takes while it is retained
	asks  bool // it asks for an acknowledgement
}

func newOutbox(log *slog.Logger, tokens convert.Tokens) *outbox {
	o := &outbox{log: log, taskTokens: tokens}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// attach makes ss the one stream that sends. Frames after the one with seq seen are sent again, once the worker has registered: see proceed. ok is
// false if one of them is gone.
func (o *outbox) attach(ss *Session, seen uint64) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.again, ok = o.sent.from(seen + 1); !ok {
		return false
	}
	o.stream, o.closed, o.held = ss, false, true
	return true
}

// proceed sends what has waited since attach.
func (o *outbox) proceed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held {
		o.held = false
		for i := range o.waiting.pushed {
			o.waiting.pushed[i].stale = true
		}
		o.wake()
	}
}

// detach ends the sending of a stream; nobody waits for room any more.
func (o *outbox) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.detachLocked()
}

// forget drops all that waits, now and later.
func (o *outbox) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	o.waiting, o.sent, o.again, o.unacked = waiting{}, retained{}, nil, unacked{}
	o.resends.stop()
	o.detachLocked()
}

// detachLocked leaves the stream, if there is one. One that is ending, and has waited for what was under way, is over by that: its writer says so.
func (o *outbox) detachLocked() {
	ss := o.stream
	o.stream, o.closed = nil, true
	o.changed.Broadcast()
	if ss != nil && ss.closing {
		o.start(ss)
	}
}

// size is about how many bytes wait for a worker that is to come back.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.sent.bytes + o.room
	for _, p := range o.waiting.pushed {
		for i := range p.granted {
			n += p.granted[i].Bytes - p.granted[i].Task.Spec.Size // the payload is in the store
		}
	}
	return n
}

// reserve waits until there is room for answers of so many bytes; false means that the stream is ending. Only the reader waits here.
// Each reservation is given back once, by put or release.
func (o *outbox) reserve(bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.room > 0 && o.room+bytes > maxHeld {
		o.changed.Wait()
	}
	if o.closed {
		return false
	}
	o.room += bytes
	return true
}

func (o *outbox) release(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.room -= bytes
	o.wake()
}

// add changes what waits, unless the session is over.
func (o *outbox) add(change func(*waiting)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone {
		change(&o.waiting)
		o.wake()
	}
}

func (o *outbox) put(out outgoing) {
	o.backlog.Add(out.bytes)
	o.add(func(w *waiting) { w.answers = append(w.answers, out) })
}

// push queues a frame of the coordinator's own accord. It asks for an acknowledgement.
func (o *outbox) push(make func(lease.Now) *lessorv1.SessionResponse) {
	o.add(func(w *waiting) {
		w.pushed = append(w.pushed, push{frame: &outgoing{make: make, kept: answerSize, asks: true}})
	})
}

// reply queues a frame that the reader causes, once there is room.
func (o *outbox) reply(make func(lease.Now) *lessorv1.SessionResponse) {
	if o.reserve(answerSize) {
		o.put(outgoing{make: make, bytes: answerSize, kept: answerSize})
	}
}

// behind reports whether work waits to be sent: then no more is wanted (W11).
func (o *outbox) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.waiting.pushed, func(p push) bool { return p.frame == nil })
}

// close stops the reader of a stream from taking more frames. What is under way is still answered and sent; then the writer sends the last frame.
func (o *outbox) close(ss *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stream == ss {
		o.closed = true
		o.changed.Broadcast()
	}
	ss.closing = true
	o.start(ss)
}

// open reports whether the stream may still be answered.
func (o *outbox) open() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.closed
}

// took notes a sequenced frame of the worker that is to be acknowledged with the next frame that goes out (W6).
func (o *outbox) took(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.newest = id
	o.resends.rely(o)
}

// transmission is a frame that is about to be sent. granted, stale and answer are set only the first time that it is sent.
type transmission struct {
	*sentFrame
	granted []engine.Granted
	stale   bool   // see push
	ack     string // id of the worker's frame that it acknowledges; empty: none
	answer  int    // reserved room to give back
	again   bool   // it was sent before
}

// size returns how many bytes less wait once the frame has been sent.
func (p *transmission) size() int {
	n := p.answer
	for i := range p.granted {
		n += p.granted[i].Bytes
	}
	return n
}

// next takes what waits first, gives it its number and retains it.
func (o *outbox) next() (p transmission) {
	w := &o.waiting
	if len(w.answers) > 0 {
		out := w.answers[0]
		if w.answers = w.answers[1:]; len(w.answers) == 0 {
			w.answers = nil
		}
		p.answer = out.bytes
		p.sentFrame = &sentFrame{make: out.make, asks: out.asks, bytes: out.kept}
	} else {
		p = w.nextPush()
	}
	o.sent.add(p.sentFrame)
	if p.leases != nil {
		o.unacked.add(p.seq, p.leases)
	}
	return p
}

func (w *waiting) nextPush() (p transmission) {
	first := &w.pushed[0]
	if f := first.frame; f != nil {
		p.sentFrame = &sentFrame{make: f.make, asks: f.asks, bytes: f.kept}
	} else {
		n := fill(first.granted)
		p.granted, p.stale = first.granted[:n], first.stale
		p.sentFrame = &sentFrame{leases: handOver(p.granted), asks: true, bytes: n * handedSize}
		if first.granted = first.granted[n:]; len(first.granted) > 0 {
			return p
		}
	}
	*first = push{}
	if w.pushed = w.pushed[1:]; len(w.pushed) == 0 {
		w.pushed = nil
	}
	return p
}

// stamp adds what every frame that goes out carries.
func (o *outbox) stamp(p transmission) transmission {
	p.ack, o.newest = o.newest, ""
	if p.asks {
		o.resends.sent(o, p.sentFrame)
	}
	return p
}
