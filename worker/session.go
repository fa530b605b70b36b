package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// protocolVersion is the version of the session protocol that this package speaks.
const protocolVersion = 1

// session is one stream, from its opening to its end. What must outlive it is in the Worker.
type session struct {
	w      *Worker
	stream grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	// ctx is the stream's; cancel ends the stream at once, with a cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// beatInterval is how often to send a heartbeat where no lease asks for one.
	beatInterval time.Duration
	// registration is the id of the register frame.
	registration string

	// frames counts the frames sent; a frame's id is its number.
	frames uint64
	// slots is the capacity that the coordinator was told; drainSent: it was told of the drain.
	slots     int
	drainSent bool

	// ended is closed when the reader has ended; readErr and established are the reader's until then. established: the
	// coordinator has said something after accept, and so has nothing against the registration.
	ended       chan struct{}
	readErr     error
	established bool

	// Guarded by Worker.mu, because both the reader and the writer need them:

	// sent holds, by id, the frames that must be answered.
	sent map[string]*sentFrame
	// control is what goes out first: acknowledgements and errors.
	control []*lessorv1.SessionRequest
}

// sentFrame is a frame that waits for its answer.
type sentFrame struct {
	// at is a time before the frame left.
	at      time.Time
	reports []*report
	beats   []sentBeat
}

// sentBeat is the heartbeat of one lease in a frame.
type sentBeat struct {
	a *attempt
	renewal
}

// session opens a stream and serves it to its end. A *RefusedError says that no other session will fare better.
func (w *Worker) session(patience time.Duration) error {
	s := &session{w: w, ended: make(chan struct{}), sent: make(map[string]*sentFrame)}
	s.ctx, s.cancel = context.WithCancelCause(w.base)
	defer s.cancel(nil)
	err := s.open(patience)
	if err == nil {
		err = s.serve()
	}
	return s.close(err)
}

// open connects within patience, then shakes hands and registers within openTimeout, as long as the worker is not drained.
func (s *session) open(patience time.Duration) error {
	s.w.setState(StateHandshaking)
	defer context.AfterFunc(s.w.drained, func() { s.cancel(ErrDraining) })()
	if err := s.connect(patience); err != nil {
		return err
	}
	timer := time.AfterFunc(openTimeout, func() { s.cancel(errOpenTimeout) })
	defer timer.Stop()
	if err := s.handshake(); err != nil {
		return err
	}
	return s.register()
}

// connect opens the stream. It waits for a connection instead of failing at once: a connection that failed has a backoff
// of its own (see Dial), which ours could miss again and again. The status then has the reason of its last failure.
func (s *session) connect(patience time.Duration) (err error) {
	timer := time.AfterFunc(patience, func() { s.cancel(errNoConnection) })
	defer timer.Stop()
	s.stream, err = s.w.client.Session(s.ctx, grpc.WaitForReady(true),
		grpc.MaxCallRecvMsgSize(s.w.cfg.MaxMessageBytes), grpc.MaxCallSendMsgSize(s.w.cfg.MaxMessageBytes))
	if errors.Is(context.Cause(s.ctx), errNoConnection) {
		return fmt.Errorf("%w: %s", errNoConnection, strings.TrimPrefix(status.Convert(err).Message(), "latest balancer error: "))
	}
	return err
}

// handshake says who connects and waits for accept. A resume token would go here, and come with accept.
func (s *session) handshake() error {
	host, _ := os.Hostname()
	hello := s.frame(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
		Protocol: protocolVersion,
		Worker: &lessorv1.WorkerInfo{
			Name:       s.w.cfg.Name,
			InstanceId: s.w.instance,
			Version:    clip(s.w.cfg.Version, maxID),
			Hostname:   clip(host, maxID),
		},
	}}})
	// Required here, bound to the stream from here on.
	hello.Tenant = s.w.cfg.Tenant
	hello.Sender = &lessorv1.Sender{Role: "worker", Id: s.w.cfg.Name}
	if err := s.send(hello); err != nil {
		return err
	}
	accept, err := s.awaitAccept()
	if err != nil {
		return err
	}
	s.beatInterval = max(spanOr(accept.GetHeartbeatInterval(), defaultInterval), time.Millisecond)
	s.w.log.Info("session accepted", "session", accept.GetSessionId(), "coordinator", accept.GetCoordinatorVersion())
	return nil
}

// awaitAccept reads up to the answer to the handshake.
func (s *session) awaitAccept() (*lessorv1.Accept, error) {
	for {
		f, err := s.stream.Recv()
		if err != nil {
			return nil, s.streamError(err)
		}
		if err := s.checkEnvelope(f); err != nil {
			return nil, err
		}
		switch p := f.GetPayload().(type) {
		case *lessorv1.SessionResponse_Accept:
			return p.Accept, nil
		case *lessorv1.SessionResponse_Error:
			return nil, &frameError{p.Error}
		case *lessorv1.SessionResponse_Reset_:
			return nil, &resetError{p.Reset_}
		case nil: // an acknowledgement
		default:
			return nil, fmt.Errorf("worker: %T instead of accept", p)
		}
	}
}

// register says what the worker can do, and lets the first heartbeat follow: it renews, on the new stream, all leases
// that the worker still works under.
func (s *session) register() error {
	s.w.setState(StateRegistered)
	f := s.frame(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
		Capabilities: &lessorv1.Capabilities{
			Concurrency: &lessorv1.Concurrency{MaxParallel: uint32(s.w.cfg.Concurrency)},
			Types:       s.w.types(),
		},
		Queues:      s.w.queues,
		WorkspaceId: s.w.cfg.Workspace,
	}}})
	s.registration = f.GetId()
	s.slots = s.w.cfg.Concurrency
	if err := s.send(f); err != nil {
		return err
	}
	s.w.lock()
	defer s.w.unlock()
	for _, a := range s.w.mu.attempts {
		s.w.queueBeatLocked(a)
	}
	return nil
}

// serve lets the reader and the writer run until one of them ends, and then the other.
func (s *session) serve() error {
	s.w.setState(StateHeartbeating)
	// Once there is nothing left to do, goodbye and its answer get a moment, on a blocked stream too.
	defer context.AfterFunc(s.w.drained, func() {
		time.AfterFunc(goodbyeTimeout, func() { s.cancel(errClosed) })
	})()
	go s.read()
	if err := s.write(); err != nil {
		s.cancel(err)
	}
	<-s.ended
	return s.readErr
}

// send hands a frame to the stream. A stream that has ended is no error here: Recv says why it did.
func (s *session) send(f *lessorv1.SessionRequest) error {
	err := s.stream.Send(f)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return s.streamError(err)
}

// streamError is why the stream ended: our own reason where we ended it.
func (s *session) streamError(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errClosed
	}
	return err
}

// close puts back what was sent without an answer, and says why the session ended.
func (s *session) close(err error) error {
	s.w.lock()
	defer s.w.unlock()
	for id := range s.sent {
		s.unansweredLocked(id, "the stream broke", atOnce)
	}
	if refused := refusal(err, s.established); refused != nil {
		return refused
	}
	return err
}

// unansweredLocked queues the content of a frame again: it got no verdict.
func (s *session) unansweredLocked(id, why string, again repeat) {
	f := s.sent[id]
	delete(s.sent, id)
	for _, r := range f.reports {
		s.w.retryLocked(r, why, again)
	}
	for _, b := range f.beats {
		s.w.retryBeatLocked(b.a, b.renewal, again)
	}
}

// frame gives a frame its envelope. It is called by one goroutine at a time: the opener, then the writer.
func (s *session) frame(f *lessorv1.SessionRequest) *lessorv1.SessionRequest {
	s.frames++
	f.Id = strconv.FormatUint(s.frames, 10)
	f.Ts = timestamppb.Now()
	return f
}
