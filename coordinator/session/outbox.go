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

// Bounds of what waits for a worker that reads slowly (W11). The worker's slots bound the work that
// waits; these constants bound the rest.
var maxHeld = 4 << 20 // bytes of frames that the engine decides, and of answers that wait to be sent

const answerSize = 512 // bytes that each answer is counted as

// outbox holds the frames of a session that wait to be sent, and the sent frames that the worker
// has not acknowledged. It outlives the streams (W8): the next stream sends what one stream has not
// sent. A frame is made right before it is sent, so that leases that wait together share a frame,
// and the times in a frame are those of the sending.
type outbox struct {
	log     *slog.Logger
	backlog engine.Backlog // of what waits to be sent

	mu         sync.Mutex    // guards the rest
	changed    *sync.Cond    // signalled when a waiting reader may go on
	writer     *streamWriter // of the stream that sends; nil: none until the worker comes back
	closed     bool          // the stream no longer handles frames of the worker; pending answers are still sent
	paused     bool          // nothing is sent yet, because the worker has not registered on this stream
	waiting    waiting
	sent       retained
	unacked    unacked
	reserved   int    // bytes reserved for answers that no writer has taken yet
	pendingAck string // id of the worker's newest sequenced frame, which the next frame will acknowledge; empty: none
	forgotten  bool   // the session is over for good
	pace       pace
}

// waiting holds what the writer will send. Answers go first, so that no work overtakes the verdict
// that freed a slot for it. Pushed frames keep their order, so that no cancel overtakes a dispatch,
// and no dispatch a cancel.
type waiting struct {
	answers []waitingFrame
	pushed  []waitingFrame // dispatches, and other frames that answer no frame of the worker
}

// frameMaker makes a frame right before it is sent. tokens makes the task tokens for the worker of
// the stream on which the frame goes out.
type frameMaker func(now lease.Now, tokens convert.Tokens) *lessorv1.SessionResponse

// waitingFrame is a frame that was never sent. When a writer takes it, it becomes a sentFrame,
// which can be sent again; each time that a writer sends it is a transmission.
type waitingFrame struct {
	make     frameMaker       // nil for a dispatch
	granted  []engine.Granted // leases to dispatch; they may need more than one frame
	stale    bool             // some of these leases have waited for a stream: they may have ended meanwhile
	wantsAck bool             // it asks for an acknowledgement
	reserved int              // size of its reservation, which is given back when a writer takes it
	bytes    int              // for which it counts while it is retained; a dispatch also counts its leases
}

func (w *waiting) empty() bool { return len(w.answers) == 0 && len(w.pushed) == 0 }

// next removes and returns the first frame. Leases that do not fit into it go on waiting.
func (w *waiting) next() waitingFrame {
	if len(w.answers) > 0 {
		return pop(&w.answers)
	}
	first := &w.pushed[0]
	if n := countForFrame(first.granted); n < len(first.granted) {
		part := *first
		part.granted, first.granted = first.granted[:n], first.granted[n:]
		return part
	}
	return pop(&w.pushed)
}

// pop removes and returns the first item of a queue.
func pop[T any](queue *[]T) (first T) {
	q := *queue
	first, q[0] = q[0], first
	if *queue = q[1:]; len(*queue) == 0 {
		*queue = nil
	}
	return first
}

func newOutbox(log *slog.Logger) *outbox {
	o := &outbox{log: log}
	o.sent.last = 1 // the accept frame; each stream makes its own
	o.sent.fired = o.resend
	o.changed = sync.NewCond(&o.mu)
	return o
}

// attach makes w the writer that sends. When the worker has registered (see unpause), the frames
// after seq seen are sent again. ok is false if one of them is not retained any more.
func (o *outbox) attach(w *streamWriter, seen uint64) (ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sent.resendFrom(seen + 1) {
		return false
	}
	o.writer, o.closed, o.paused = w, false, true
	return true
}

// unpause allows sending, if attach has paused it. It is called for each frame that the worker
// sends after its handshake.
func (o *outbox) unpause() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.paused {
		o.paused = false
		for i := range o.waiting.pushed {
			o.waiting.pushed[i].stale = true
		}
		o.wake()
	}
}

// detach takes the outbox from its stream, which sends nothing more. A reader that waits for room
// returns.
func (o *outbox) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.detachLocked()
}

// forget drops everything that waits, and everything that is added later.
func (o *outbox) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgotten = true
	if o.sent.timer != nil {
		o.sent.timer.Stop()
	}
	o.waiting, o.sent, o.unacked = waiting{}, retained{}, unacked{}
	o.detachLocked()
}

// detachLocked is detach with mu held. If the stream is closing and has waited for pending answers,
// it has finished now: a writer then ends it.
func (o *outbox) detachLocked() {
	w := o.writer
	o.writer, o.closed = nil, true
	o.changed.Broadcast()
	if w != nil && w.closing {
		w.start()
	}
}

// size returns about how many bytes the outbox holds for a worker that may come back.
func (o *outbox) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.sent.bytes + o.reserved
	for _, p := range o.waiting.pushed {
		for i := range p.granted {
			g := &p.granted[i]
			n += g.Bytes - g.Task.Spec.Size + len(g.Task.Spec.Payload) // the payload may be only in the store
		}
	}
	return n
}

// reserve waits until there is room for answers with the given number of bytes. It returns false if
// the stream ends. Only the reader calls it. Each reservation is given back once: by release, or
// when a writer takes the frame that put got.
func (o *outbox) reserve(bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.reserved > 0 && o.reserved+bytes > maxHeld {
		o.changed.Wait()
	}
	if o.closed {
		return false
	}
	o.reserved += bytes
	return true
}

func (o *outbox) release(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reserved -= bytes
	o.wake()
}

// add changes what waits, unless the session has ended for good.
func (o *outbox) add(change func(*waiting)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.forgotten {
		change(&o.waiting)
		o.wake()
	}
}

func (o *outbox) put(f waitingFrame) {
	o.backlog.Add(f.reserved)
	o.add(func(w *waiting) { w.answers = append(w.answers, f) })
}

// push queues a frame that answers no frame of the worker. It asks for an acknowledgement.
func (o *outbox) push(make frameMaker) {
	o.add(func(w *waiting) {
		w.pushed = append(w.pushed, waitingFrame{make: make, bytes: answerSize, wantsAck: true})
	})
}

// reply waits for room and queues an answer to a frame of the worker. Only the reader calls it.
func (o *outbox) reply(make frameMaker) {
	if o.reserve(answerSize) {
		o.put(waitingFrame{make: make, reserved: answerSize, bytes: answerSize})
	}
}

// workWaits reports whether leases wait to be sent. Then the session needs no more work (W11).
func (o *outbox) workWaits() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.waiting.pushed, func(f waitingFrame) bool { return f.make == nil })
}

// close ends the handling of a stream's incoming frames. The pending answers are still made and
// sent; then a writer sends the reset frame, if there is one.
func (o *outbox) close(w *streamWriter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.writer == w {
		o.closed = true
		o.changed.Broadcast()
	}
	w.closing = true
	w.start()
}

// open reports whether the stream still handles frames of the worker.
func (o *outbox) open() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.closed
}

// ackLater makes the next frame that goes out acknowledge a sequenced frame of the worker (W6).
func (o *outbox) ackLater(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pendingAck = id
	o.sent.setReliable()
}

// transmission is a frame that is about to be sent. granted, stale and reserved are those of its
// waitingFrame; they are zero if it is sent again.
type transmission struct {
	*sentFrame
	granted  []engine.Granted
	stale    bool
	reserved int
	ack      string // id of the worker's frame that it acknowledges; empty: none
	resent   bool   // it was sent before
}

// size returns by how many bytes the backlog shrinks when the frame is sent.
func (p *transmission) size() int {
	n := p.reserved
	for i := range p.granted {
		n += p.granted[i].Bytes
	}
	return n
}

// takeWaiting removes the first frame that waits, gives it its seq and retains it.
func (o *outbox) takeWaiting() transmission {
	w := o.waiting.next()
	// now, not when it is sent: its stream may be stuck, and the next stream can end without
	// waiting for that one
	o.reserved -= w.reserved
	o.changed.Broadcast()
	f := &sentFrame{make: w.make, wantsAck: w.wantsAck, bytes: w.bytes + len(w.granted)*handedSize}
	o.sent.add(f)
	if w.make == nil {
		f.leases = handedLeases(w.granted)
		o.unacked.add(f.seq, f.leases)
	}
	return transmission{sentFrame: f, granted: w.granted, stale: w.stale, reserved: w.reserved}
}

// prepare adds the pending acknowledgement to the frame. If the frame asks for an acknowledgement,
// prepare also notes the sending for resends.
func (o *outbox) prepare(p transmission) transmission {
	p.ack, o.pendingAck = o.pendingAck, ""
	if p.wantsAck {
		o.sent.sending(p.sentFrame)
	}
	return p
}
