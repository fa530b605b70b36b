package session

// A stream has a writer while there is something to write, and none while it is idle: most streams are, most of the time.

// next step of a writer.
type step int

const (
	stepSend  step = iota // the frame
	stepPause             // there is nothing to send: the next one begins when there is
	stepEnd               // there will be nothing more: another stream has taken over, or all is said
)

// take returns the next frame of a stream. It is numbered and retained before it is sent, so that it is not lost with the stream.
func (o *outbox) take(ss *Session) (p transmission, then step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.over(ss):
		return transmission{}, stepEnd
	case !o.due(ss):
		ss.writing = false
		return transmission{}, stepPause
	case len(o.again) > 0:
		p.sentFrame, o.again, p.again = o.again[0], o.again[1:], true
	default:
		p = o.next()
	}
	return o.stamp(p), stepSend
}

// due reports whether the stream has something to send.
func (o *outbox) due(ss *Session) bool {
	return o.stream == ss && !o.held && (len(o.again) > 0 || !o.waiting.empty())
}

// over reports whether the stream has sent all that it will. Before it is closed, it is not known what the last word is.
func (o *outbox) over(ss *Session) bool {
	return ss.closing && !o.due(ss) && (o.stream != ss || o.held || o.room == 0)
}

// wake lets the reader that waits for room look again, and has a writer where there is something to do for one.
func (o *outbox) wake() {
	o.changed.Broadcast()
	if ss := o.stream; ss != nil && (o.due(ss) || o.over(ss)) {
		o.start(ss)
	}
}

// start begins a writer of the stream, unless there is one.
func (o *outbox) start(ss *Session) {
	if !ss.writing {
		ss.writing = true
		go ss.write()
	}
}

// yield ends the time in which the reader alone writes, see Session.
func (o *outbox) yield(ss *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ss.writing = false
	if ss.closing || o.due(ss) {
		o.start(ss)
	}
}
