package session

import (
	"sync"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// incoming is the order of a worker's frames in a session (W6, W7). It outlives the session's streams.
type incoming struct {
	mu     sync.Mutex // held while a frame is taken, so that a stream that takes over finds none half done
	stream *Session   // the stream whose frames count; nil: none
	next   uint64     // seq of the next sequenced frame
	gap    uint64     // highest seq that was dropped since frame next is missing; 0: none is missing
	recent recent
	sum    uint64 // of the frame that is being taken, where it is to be remembered; else 0
}

// order is what becomes of a frame.
type order int

const (
	inOrder  order = iota // take it
	repeated              // it was taken before: acknowledge it again
	early                 // one before it is missing: drop it
	earlyNew              // the same, and the worker has to be told
)

// enter begins the taking of a frame of a stream; false: another one has taken over. Each that was begun ends with leave.
func (in *incoming) enter(ss *Session) bool {
	in.mu.Lock()
	if in.stream == ss {
		return true
	}
	in.mu.Unlock()
	return false
}

func (in *incoming) leave() { in.mu.Unlock() }

// opened remembers the handshake.
func (in *incoming) opened(ss *Session, m *lessorv1.SessionRequest) {
	if in.enter(ss) {
		in.recent.add(sumOf(m.GetId(), m.GetCorr()))
		in.leave()
	}
}

// attach lets the frames of a stream count, and no others, as soon as the frame that another one is at has been taken. It returns the seq
// of the next sequenced frame.
func (in *incoming) attach(ss *Session) (next uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stream, in.gap = ss, 0
	in.recent = recent{} // a worker that names its frames anew on each stream means others
	return in.next
}

// judge puts a frame into its order.
func (in *incoming) judge(m *lessorv1.SessionRequest, kind frameKind) order {
	in.sum = 0
	switch seq := m.GetSeq(); {
	case seq == 0:
		return in.judgeUnsequenced(m, kind)
	case seq < in.next:
		return repeated
	case seq > in.next:
		return in.judgeEarly(seq)
	}
	return inOrder
}

func (in *incoming) judgeUnsequenced(m *lessorv1.SessionRequest, kind frameKind) order {
	if !remembered(m, kind) {
		return inOrder
	}
	if in.sum = sumOf(m.GetId(), m.GetCorr()); in.recent.has(in.sum) {
		return repeated
	}
	return inOrder
}

// judgeEarly tells of each gap once, and again where a frame comes for the second time: what was sent again did not close it.
func (in *incoming) judgeEarly(seq uint64) order {
	tell := in.gap == 0 || seq <= in.gap
	in.gap = max(in.gap, seq)
	if tell {
		return earlyNew
	}
	return early
}

// taken notes that a frame had its effect.
func (in *incoming) taken(m *lessorv1.SessionRequest) {
	switch {
	case m.GetSeq() != 0:
		in.next, in.gap = m.GetSeq()+1, 0
	case in.sum != 0:
		in.recent.add(in.sum)
	}
}

// remembered reports whether a frame without a seq must not be taken twice. A heartbeat may, and feedback is volatile.
func remembered(m *lessorv1.SessionRequest, kind frameKind) bool {
	switch kind {
	case frameBare, frameHeartbeat, frameFeedback:
		return m.GetAck().GetRequest()
	}
	return true
}
