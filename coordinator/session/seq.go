package session

import lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"

// incoming tracks the order of a worker's frames in a session (W6, W7), and keeps what they said of
// the worker. It outlives the session's streams.
type incoming struct {
	mu     waitLock // held while a frame is handled, so that a stream takes over only between frames
	stream *Session // the stream whose frames count; nil: none
	next   uint64   // seq of the next sequenced frame
	gap    uint64   // highest seq that was dropped because frame next is missing; 0: none is missing
	recent recent
	sum    uint64 // hash of the frame that is being handled, if recent must remember it when it is taken; else 0
	said   selfReport
}

// order says what to do with a frame.
type order int

const (
	inOrder  order = iota // handle it
	repeated              // it was handled before: acknowledge it again
	early                 // a frame before it is missing: drop it
	earlyNew              // a frame before it is missing: drop it, and tell the worker
)

// enter begins the handling of a frame of a stream. It returns false if another stream has taken
// over. If it returns true, leave must follow.
func (in *incoming) enter(ss *Session) bool {
	in.mu.Lock()
	if in.stream == ss {
		return true
	}
	in.mu.Unlock()
	return false
}

func (in *incoming) leave() { in.mu.Unlock() }

// opened remembers the handshake frame, so that a repeat of it has no effect.
func (in *incoming) opened(ss *Session, m *lessorv1.SessionRequest) {
	if in.enter(ss) {
		in.recent.add(sumOf(m.GetId(), m.GetCorr()))
		in.leave()
	}
}

// ended is called when no more frames of ss come. What is remembered for its repeats is dropped,
// because a kept session does not need it.
func (in *incoming) ended(ss *Session) {
	if in.enter(ss) {
		in.recent = recent{}
		in.leave()
	}
}

// attach accepts the frames of ss from now on, and those of no other stream. If another stream is
// handling a frame, attach waits until it is done. It returns the seq of the next sequenced frame,
// and what the worker has said of itself.
func (in *incoming) attach(ss *Session) (next uint64, said selfReport) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stream, in.gap = ss, 0
	in.recent = recent{} // a worker may use the same ids for other frames on its next stream
	return in.next, in.said
}

// judge says what to do with a frame.
func (in *incoming) judge(m *lessorv1.SessionRequest, kind frameKind) order {
	in.sum = 0
	if remembered(m, kind) {
		in.sum = sumOf(m.GetId(), m.GetCorr())
	}
	switch seq := m.GetSeq(); {
	case seq != 0 && seq < in.next:
		return repeated
	case seq > in.next:
		return in.judgeEarly(seq)
	case in.sum != 0 && in.recent.has(in.sum):
		in.advance(seq)
		return repeated
	}
	return inOrder
}

// advance notes that the frame with the next seq was handled, or changes nothing. It does nothing
// if seq is 0.
func (in *incoming) advance(seq uint64) {
	if seq != 0 {
		in.next, in.gap = seq+1, 0
	}
}

// judgeEarly reports each gap once. It reports the gap again if a dropped frame comes again: the
// worker's resend has not closed the gap.
func (in *incoming) judgeEarly(seq uint64) order {
	tell := in.gap == 0 || seq <= in.gap
	in.gap = max(in.gap, seq)
	if tell {
		return earlyNew
	}
	return early
}

// refused is called if the frame that is being handled changes nothing. It is not remembered: a
// repeat of it is no duplicate but is refused again, and a correction may come under the same id.
func (in *incoming) refused() { in.sum = 0 }

// taken records that a frame was handled, or refused: that uses up its seq, too (W7).
func (in *incoming) taken(m *lessorv1.SessionRequest) {
	in.advance(m.GetSeq())
	if in.sum != 0 {
		in.recent.add(in.sum)
	}
}

// remembered reports whether recent must remember a frame, so that it is not handled twice. A
// heartbeat needs that only if it asks for an acknowledgement: to handle one twice does no harm,
// and a session that only sends heartbeats stays small.
func remembered(m *lessorv1.SessionRequest, kind frameKind) bool {
	return kind != frameBare && kind != frameHeartbeat || m.GetAck().GetRequest()
}
