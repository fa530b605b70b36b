package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// errCut ends a stream whose connections were cut.
var errCut = errors.New("the connection was cut")

// session is one stream with the connections that carry it.
type session struct {
	p         *Proxy
	near, far *conn
}

// carry lets frames pass in both directions until one of them has ended.
func (s *session) carry(
	ctx context.Context,
	worker grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse],
	coordinator grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse],
) error {
	number := s.p.opened.Add(1)
	up := &pipe[lessorv1.SessionRequest]{
		p: s.p, direction: ToCoordinator, recv: worker.Recv, send: coordinator.Send, to: s.far,
		opening: func(m *lessorv1.SessionRequest) bool { return m.GetHandshake() != nil },
		rand:    rand.New(rand.NewPCG(s.p.seed, 2*number)),
	}
	down := &pipe[lessorv1.SessionResponse]{
		p: s.p, direction: ToWorker, recv: coordinator.Recv, send: worker.Send, to: s.near,
		opening: func(m *lessorv1.SessionResponse) bool { return m.GetAccept() != nil },
		rand:    rand.New(rand.NewPCG(s.p.seed, 2*number+1)),
	}
	upEnded, downEnded := make(chan error, 1), make(chan error, 1)
	go func() { upEnded <- up.run(ctx) }()
	go func() { downEnded <- down.run(ctx) }()
	for {
		select {
		case err := <-upEnded:
			if !errors.Is(err, io.EOF) {
				return s.cut(err)
			}
			_ = coordinator.CloseSend() // if this fails, the other direction reports it
		case err := <-downEnded:
			return s.cut(err)
		}
	}
}

// cut ends the stream as the coordinator ended it. If the coordinator gave no status, it closes the
// connections, too.
func (s *session) cut(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	if code := status.Code(err); errors.Is(err, errCut) || code == codes.Unavailable || code == codes.Canceled {
		s.near.Close()
		s.far.Close()
	}
	return err
}
