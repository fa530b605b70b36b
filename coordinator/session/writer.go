package session

// A stream has a writer only while it has frames to send. Most streams are idle most of the time,
// and so need no goroutine for that.

// streamWriter says whether a writer of a stream runs. outbox.mu guards it.
type streamWriter struct {
	run     func() // sends the frames that nextTransmission returns
	running bool   // run is running, or the handshake is not accepted yet and the reader sends
	closing bool   // the stream no longer handles frames of the worker
}

// start starts a writer, unless one runs.
func (w *streamWriter) start() {
	if !w.running {
		w.running = true
		go w.run()
	}
}

// writerStep is what a writer does next.
type writerStep int

const (
	stepSend  writerStep = iota // send the frame
	stepPause                   // return, because there is nothing to send now; a new writer starts when there is
	stepEnd                     // return for good: another stream has the session, or everything is sent
)

// nextTransmission returns the next frame of a stream. It numbers and retains a new frame before
// the writer sends it, so that the frame is not lost if the stream breaks.
func (o *outbox) nextTransmission(w *streamWriter) (p transmission, then writerStep) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.finished(w):
		return transmission{}, stepEnd
	case !o.hasFrameToSend(w):
		w.running = false
		return transmission{}, stepPause
	case len(o.sent.toResend) > 0:
		p.sentFrame, p.resent = pop(&o.sent.toResend), true
	default:
		p = o.takeWaiting()
	}
	return o.prepare(p), stepSend
}

// hasFrameToSend reports whether the stream has something to send.
func (o *outbox) hasFrameToSend(w *streamWriter) bool {
	return o.writer == w && !o.paused && (len(o.sent.toResend) > 0 || !o.waiting.empty())
}

// finished reports whether the stream has sent all its frames. It is false while the stream is not
// closing, because more frames can follow.
func (o *outbox) finished(w *streamWriter) bool {
	return w.closing && !o.hasFrameToSend(w) && (o.writer != w || o.paused || o.reserved == 0)
}

// wake wakes a reader that waits for room, and starts a writer if there is work for one.
func (o *outbox) wake() {
	o.changed.Broadcast()
	if w := o.writer; w != nil && (o.hasFrameToSend(w) || o.finished(w)) {
		w.start()
	}
}

// allowWriters ends the time in which only the reader sends; see Session.
func (o *outbox) allowWriters(w *streamWriter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.running = false
	if w.closing || o.hasFrameToSend(w) {
		w.start()
	}
}
