package coordinator

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Bounds of what waits for a worker that reads slowly (W11). Work is bounded by its slots, everything else by these.
const (
	maxHeld    = 4 << 20 // bytes of frames that are being decided, and of answers that wait
	answerSize = 512     // bytes that each answer counts as
)

// outbox holds what is to be sent on a stream until its one writer has sent it. Frames are made at the last moment, so that what has
// come together goes together and times are those of the sending.
type outbox struct {
	ss     *session
	stuck  chan struct{} // closed when a frame was not read in time
	slow   *time.Timer   // closes it; runs while a frame is being sent
	within time.Duration // the time to read a frame
	seq    uint64        // of the last frame; the writer's own

	mu      sync.Mutex // guards the rest
	changed *sync.Cond // work for the writer, or room for the reader
	waiting waiting
	unacked unacked
	held    int // bytes reserved for answers that are not yet sent
	closed  bool
	last    *lessorv1.Reset // goes when all else has gone
	ended   bool            // the writer takes nothing any more
}

// waiting is what the writer finds. Answers go first, so that no work comes before the verdict that made room for it. What is pushed keeps
// its order: a cancel overtakes no dispatch, and no dispatch a cancel.
type waiting struct {
	answers []outgoing
	pushed  []push
}

// push is one of three: leases handed out, one to stop, or the wish that the worker takes no more.
type push struct {
	granted []engine.Granted
	cancel  *lessorv1.Cancel
	drain   *lessorv1.Drain
}

func (p *push) isWork() bool { return p.cancel == nil && p.drain == nil }

func (w *waiting) empty() bool { return len(w.answers) == 0 && len(w.pushed) == 0 }

// outgoing makes a frame when its turn has come; bytes is the room that it gives back.
type outgoing struct {
	make  func(now lease.Now) *lessorv1.SessionResponse
	bytes int
}

func newOutbox(ss *session, within time.Duration) *outbox {
	o := &outbox{ss: ss, within: within, stuck: make(chan struct{}), unacked: unacked{frames: map[string][]leaseRef{}}}
	o.changed = sync.NewCond(&o.mu)
	o.slow = time.AfterFunc(within, sync.OnceFunc(func() { close(o.stuck) }))
	o.slow.Stop()
	return o
}

// reserve waits until there is room for answers of so many bytes; false means that the stream is ending. Only the reader waits here.
// Each reservation is given back once, by put or release.
func (o *outbox) reserve(bytes int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.held > 0 && o.held+bytes > maxHeld {
		o.changed.Wait()
	}
	if o.closed {
		return false
	}
	o.held += bytes
	return true
}

func (o *outbox) release(bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held -= bytes
	o.changed.Broadcast()
}

// add changes what waits, unless the writer has ended.
func (o *outbox) add(change func(*waiting)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		change(&o.waiting)
		o.changed.Broadcast()
	}
}

func (o *outbox) put(out outgoing) { o.add(func(w *waiting) { w.answers = append(w.answers, out) }) }

// reply queues a frame that the reader causes, once there is room.
func (o *outbox) reply(make func(lease.Now) *lessorv1.SessionResponse) {
	if o.reserve(answerSize) {
		o.put(outgoing{make: make, bytes: answerSize})
	}
}

// behind reports whether work waits to be sent: then no more is wanted (W11).
func (o *outbox) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.waiting.pushed, func(p push) bool { return p.isWork() })
}

// close lets the reader take nothing more. What is under way is still answered and sent. It returns the code of the reset that will be
// the last frame; empty: none.
func (o *outbox) close() (code string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Broadcast()
	return o.last.GetCode()
}

// write sends until the outbox is closed and everything has been answered, or the stream fails.
func (o *outbox) write() {
	defer o.end()
	for {
		w, ok := o.take()
		if !ok {
			return
		}
		if err := o.sendAll(w); err != nil {
			o.ss.end(toStatus(err))
			return
		}
	}
}

// end lets nobody wait for the writer any more.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.ended, o.waiting = true, true, waiting{}
	o.changed.Broadcast()
}

// take waits for something to send.
func (o *outbox) take() (waiting, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.waiting.empty() {
		if o.closed && o.held == 0 {
			return o.farewell()
		}
		o.changed.Wait()
	}
	w := o.waiting
	o.waiting = waiting{}
	return w, true
}

// farewell is the reset, once, then the end.
func (o *outbox) farewell() (waiting, bool) {
	if o.last == nil {
		return waiting{}, false
	}
	m := &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Reset_{Reset_: o.last}}
	o.last, o.ended = nil, true
	return waiting{answers: []outgoing{{make: func(lease.Now) *lessorv1.SessionResponse { return m }}}}, true
}

func (o *outbox) sendAll(w waiting) error {
	for _, out := range w.answers {
		err := o.send(out.make(o.ss.c.engine.Now()))
		o.release(out.bytes)
		if err != nil {
			return err
		}
	}
	for _, p := range w.pushed {
		if err := o.sendPush(p); err != nil {
			return err
		}
	}
	return nil
}

func (o *outbox) sendPush(p push) error {
	switch {
	case p.cancel != nil:
		return o.send(&lessorv1.SessionResponse{Corr: p.cancel.GetTaskId(), Payload: &lessorv1.SessionResponse_Cancel{Cancel: p.cancel}})
	case p.drain != nil:
		return o.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Drain{Drain: p.drain}})
	}
	return o.sendWork(p.granted)
}

// send puts the envelope around a payload.
func (o *outbox) send(m *lessorv1.SessionResponse) error {
	o.seq++
	if m.Id == "" {
		m.Id = "c" + strconv.FormatUint(o.seq, 10)
	}
	m.Seq, m.Ts = o.seq, stamp(o.ss.c.engine.Now().Wall)
	m.Tenant, m.Sender = o.ss.who.Tenant, &lessorv1.Sender{Role: "coordinator", Id: coordinatorName}
	o.slow.Reset(o.within)
	defer o.slow.Stop()
	return o.ss.stream.Send(m)
}
