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

// fate is what becomes of a frame.
type fate string

const (
	pass   fate = "pass"
	drop   fate = "drop"   // it is lost
	double fate = "double" // it comes twice
	swap   fate = "swap"   // it comes after the next one
	cut    fate = "cut"    // it is lost, and its stream with it
)

// odds are how likely what befalls a frame is; else it passes.
var odds = []struct {
	fate
	chance float64
}{{drop, 0.03}, {double, 0.03}, {swap, 0.03}, {cut, 0.003}}

// lossyConn is a connection between a worker and its coordinator that treats the frames of sessions badly, in both
// directions.
type lossyConn struct {
	grpc.ClientConnInterface
	up, down fates
}

func newLossyConn(conn grpc.ClientConnInterface, seed uint64) *lossyConn {
	return &lossyConn{ClientConnInterface: conn, up: newFates(seed, 0), down: newFates(seed, 1)}
}

// fates are drawn for one direction, frame by frame.
type fates struct {
	mu     sync.Mutex // guards the rest
	random *rand.Rand
	counts map[fate]int
}

func newFates(seed, direction uint64) fates {
	return fates{random: rand.New(rand.NewPCG(seed, direction)), counts: make(map[fate]int)}
}

// draw says what becomes of the next frame. Of a handshake and its accept none is merely lost: no other frame would show it,
// and the worker would wait for the whole time that opening may take, which is no blink.
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

// addTo adds the frames of each fate so far.
func (f *fates) addTo(sum map[fate]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for fate, n := range f.counts {
		sum[fate] += n
	}
}

// NewStream opens a session on which frames get lost.
func (l *lossyConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cut := context.WithCancel(ctx)
	stream, err := l.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		cut()
		return nil, err
	}
	return &lossyStream{ClientStream: stream, conn: l, cut: cut}, nil
}

// lossyStream is one session.
type lossyStream struct {
	grpc.ClientStream
	conn *lossyConn
	cut  context.CancelFunc

	// heldUp is overtaken by the next frame that is sent; the sender's own.
	heldUp []proto.Message
	// heldDown is overtaken by the next frame that comes, queue was received; the receiver's own.
	heldDown, queue []proto.Message
}

// SendMsg sends a frame, or does not.
func (s *lossyStream) SendMsg(m any) error {
	frame := proto.CloneOf(m.(*lessorv1.SessionRequest)) // the worker may change what it sends again
	fate := s.conn.up.draw(frame.GetHandshake() != nil)
	if fate == cut {
		s.cut()
		return io.EOF
	}
	for _, f := range suffer(fate, frame, &s.heldUp) {
		if err := s.ClientStream.SendMsg(f); err != nil {
			return err
		}
	}
	return nil
}

// RecvMsg receives a frame that got through.
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
		s.queue = suffer(fate, frame, &s.heldDown)
	}
	proto.Reset(m.(proto.Message))
	proto.Merge(m.(proto.Message), s.queue[0])
	s.queue = s.queue[1:]
	return nil
}

// suffer returns the frames that go on now: what is left of the frame, and after it the one that it overtakes.
func suffer(fate fate, frame proto.Message, held *[]proto.Message) []proto.Message {
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
