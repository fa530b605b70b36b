package session

// A stream has a writer only while it has frames to send. Most streams are idle most of the time, and so need no goroutine for that.

// writerStep is what a writer does next.
type writerStep int

const (
	stepSend  writerStep = iota // send the frame
	stepPause                   // return, because there is nothing to send now; a new writer starts when there is
	stepEnd                     // return for ever: another stream has the session, or everything is sent
)

// nextTransmission returns the next frame of a stream. It numbers and retains a new frame before the writer sends it, so that the frame is not
// lost if the stream breaks.
func (o *outbox) nextTransmission(ss *Session) (p transmission, then writerStep) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.finished(ss):
		return transmission{}, stepEnd
	case !o.hasFrameToSend(ss):
		ss.writing = false
		return transmission{}, stepPause
	case len(o.toResend) > 0:
		p.sentFrame, o.toResend, p.resent = o.toResend[0], o.toResend[1:], true
	default:
		p = o.takeWaiting()
	}
	return o.prepare(p), stepSend
}

// hasFrameToSend reports whether the stream has something to send.
func (o *outbox) hasFrameToSend(ss *Session) bool {
	return o.stream == ss && !o.paused && (len(o.toResend) > 0 || !o.waiting.empty())
}

// finished reports whether the stream has sent all its frames. It is false while the stream is not closing, because more frames can follow.
func (o *outbox) finished(ss *Session) bool {
	return ss.closing && !o.hasFrameToSend(ss) && (o.stream != ss || o.paused || o.reserved == 0)
}

// wake wakes a reader that waits for room, and starts a writer if there is work for one.
func (o *outbox) wake() {
	o.changed.Broadcast()
	if ss := o.stream; ss != nil && (o.hasFrameToSend(ss) || o.finished(ss)) {
		o.startWriter(ss)
	}
}

// startWriter starts a writer of the stream, unless one runs.
func (o *outbox) startWriter(ss *Session) {
	if !ss.writing {
		ss.writing = true
		go ss.write()
	}
}

// allowWriters ends the time in which only the reader sends; see Session.
func (o *outbox) allowWriters(ss *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ss.writing = false
	if ss.closing || o.hasFrameToSend(ss) {
		o.startWriter(ss)
	}
}
