package workertest_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// fate is what happens to a frame.
type fate string

const (
	pass   fate = "pass"
	drop   fate = "drop"   // the frame is lost
	double fate = "double" // the frame comes twice
	swap   fate = "swap"   // the frame comes after the next one
	cut    fate = "cut"    // the frame is lost and its stream ends
)

// odds are the probabilities of the fates; all other frames pass.
var odds = []struct {
	fate
	chance float64
}{{drop, 0.03}, {double, 0.03}, {swap, 0.03}, {cut, 0.003}}

// lossyConn is a connection between a worker and its coordinator that loses, doubles and swaps
// frames of sessions, in both directions, and cuts streams.
type lossyConn struct {
	grpc.ClientConnInterface
	up, down fates
}

func newLossyConn(conn grpc.ClientConnInterface, seed uint64) *lossyConn {
	return &lossyConn{ClientConnInterface: conn, up: newFates(seed, 0), down: newFates(seed, 1)}
}

// fates draws the fate of each frame in one direction, and counts them.
type fates struct {
	mu     sync.Mutex // guards the rest
	random *rand.Rand
	counts map[fate]int
}

func newFates(seed, direction uint64) fates {
	return fates{random: rand.New(rand.NewPCG(seed, direction)), counts: make(map[fate]int)}
}

// draw returns the fate of the next frame. A frame that opens a session, the handshake or its
// accept, passes or is cut. If it were lost no other frame would show that, and the worker would
// wait for as long as the opening of a session may take. Grants that are not acknowledged are taken
// back before that (W5).
func (f *fates) draw(opens bool) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	drawn, roll := pass, f.random.Float64()
	for _, o := range odds {
		if roll -= o.chance; roll < 0 {
			drawn = o.fate
			break
		}
	}
	if opens && drawn != cut {
		drawn = pass
	}
	f.counts[drawn]++
	return drawn
}

// addTo adds to sum how many frames had each fate so far.
func (f *fates) addTo(sum map[fate]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for fate, n := range f.counts {
		sum[fate] += n
	}
}

// NewStream opens a session on a lossyStream.
func (l *lossyConn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cut := context.WithCancel(ctx)
	stream, err := l.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		cut()
		return nil, err
	}
	return &lossyStream{ClientStream: stream, conn: l, cut: cut}, nil
}

// lossyStream is the stream of one session.
type lossyStream struct {
	grpc.ClientStream
	conn *lossyConn
	cut  context.CancelFunc

	// heldUp holds the frame, if any, that is sent after the next one. Only SendMsg uses it.
	heldUp []proto.Message
	// heldDown holds the frame, if any, that is received after the next one, and queue the frames
	// that RecvMsg returns next. Only RecvMsg uses them.
	heldDown, queue []proto.Message
}

// SendMsg draws the fate of a frame and sends what is left of it.
func (s *lossyStream) SendMsg(m any) error {
	frame := proto.CloneOf(m.(*lessorv1.SessionRequest)) // the worker may change what it sends again
	fate := s.conn.up.draw(frame.GetHandshake() != nil)
	if fate == cut {
		s.cut()
		return io.EOF
	}
	for _, f := range applyFate(fate, frame, &s.heldUp) {
		if err := s.ClientStream.SendMsg(f); err != nil {
			return err
		}
	}
	return nil
}

// RecvMsg receives frames and draws their fates until one is left.
func (s *lossyStream) RecvMsg(m any) error {
	for len(s.queue) == 0 {
		frame := &lessorv1.SessionResponse{}
		if err := s.ClientStream.RecvMsg(frame); err != nil {
			return err
		}
		fate := s.conn.down.draw(frame.GetAccept() != nil)
		if fate == cut {
			s.cut()
			return status.Error(codes.Unavailable, "the connection was cut")
		}
		s.queue = applyFate(fate, frame, &s.heldDown)
	}
	proto.Reset(m.(proto.Message))
	proto.Merge(m.(proto.Message), s.queue[0])
	s.queue = s.queue[1:]
	return nil
}

// applyFate applies a fate to a frame. It returns the frames that go on now: what is left of the
// frame, and after it the frame that was held, if it is overtaken now.
func applyFate(fate fate, frame proto.Message, held *[]proto.Message) []proto.Message {
	overtaken := *held
	switch *held = nil; fate {
	case drop:
		*held = overtaken
		return nil
	case double:
		return append([]proto.Message{frame, frame}, overtaken...)
	case swap:
		*held = []proto.Message{frame}
		return overtaken
	}
	return append([]proto.Message{frame}, overtaken...)
}
