package worker

import (
	"cmp"
	"context"
	"errors"
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

type sessionStream = grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]

// session is one stream, from its opening to its end. What must outlive it is in the Worker.
type session struct {
	w      *Worker
	stream sessionStream
	// ctx is the stream's; cancel ends the stream at once, with a cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// beatInterval is how often to send a heartbeat where no lease asks for one; idleTimeout is how long the coordinator
	// may be silent, 0 for ever.
	beatInterval, idleTimeout time.Duration
	// peer is who sends, once a frame has said so.
	peer *lessorv1.Sender
	// tenant is the tenant that the handshake stated.
	tenant string
	// registration is the id of the register frame.
	registration string

	// resuming: the handshake named a session to go on with.
	resuming bool
	// declaredCapacity is the capacity that the coordinator knows; drainSent: it was told of the drain.
	declaredCapacity capacity
	drainSent        bool

	// ended is closed when the reader has ended; readErr and established are the reader's until then. established: the
	// coordinator has said something after accept, and so has nothing against the registration.
	ended       chan struct{}
	readErr     error
	established bool

	// Guarded by Worker.mu, because both the reader and the writer need them:

	link    link
	transit transit
	// lastReceived is when the last frame came.
	lastReceived time.Time
	// sent holds, by id, the frames that must be answered.
	sent map[string]*sentFrame
	// feedbackPausedUntil is when feedback may be sent again.
	feedbackPausedUntil time.Time
	// control is what goes out first: acknowledgements and errors.
	control []*lessorv1.SessionRequest
}

// sentFrame is a frame that waits for its answer.
type sentFrame struct {
	id  string
	seq uint64
	// at is a time before the frame left first, since one before its answer was waited for on this stream.
	at, since time.Time
	reports   []*report
	beats     []sentBeat
}

// sentBeat is the heartbeat of one lease in a frame.
type sentBeat struct {
	a *attempt
	renewal
}

// runSession opens a stream and serves it to its end. It returns for how long it went on once it was open, and why it ended; a
// *RefusedError says that no other session will fare better.
func (w *Worker) runSession(connectTimeout time.Duration) (lasted time.Duration, err error) {
	s := &session{w: w, ended: make(chan struct{}), sent: make(map[string]*sentFrame)}
	s.ctx, s.cancel = context.WithCancelCause(w.base)
	defer s.cancel(nil)
	if err = s.open(connectTimeout); err == nil {
		opened := time.Now()
		err = s.serve()
		lasted = time.Since(opened)
	}
	return lasted, s.close(err)
}

// open connects within patience, then shakes hands and registers within openTimeout, as long as the worker is not drained.
func (s *session) open(timeout time.Duration) error {
	s.w.move(opening)
	defer context.AfterFunc(s.w.drained, func() { s.cancel(ErrDraining) })()
	if err := s.connect(timeout); err != nil {
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
func (s *session) connect(timeout time.Duration) (err error) {
	timer := time.AfterFunc(timeout, func() { s.cancel(ErrNoConnection) })
	defer timer.Stop()
	s.stream, err = s.openStream()
	if err != nil && errors.Is(context.Cause(s.ctx), ErrNoConnection) {
		return noConnectionError(strings.TrimPrefix(status.Convert(err).Message(), "latest balancer error: "))
	}
	return err
}

// openStream calls Session. The call asks the source of credentials, which is the program's own and may heed no context: it is then left behind, and
// the next call waits for it to return, so that there is never more than one.
func (s *session) openStream() (sessionStream, error) {
	select {
	case s.w.openingCall <- struct{}{}:
	case <-s.ctx.Done():
		return nil, errCallHangs
	}
	type result struct {
		stream sessionStream
		err    error
	}
	called := make(chan result, 1)
	go func() {
		defer func() { <-s.w.openingCall }()
		stream, err := s.w.client.Session(s.ctx, grpc.WaitForReady(true),
			grpc.MaxCallRecvMsgSize(maxReceived), grpc.MaxCallSendMsgSize(s.w.cfg.MaxMessageBytes))
		called <- result{stream, err}
	}()
	select {
	case r := <-called:
		return r.stream, r.err
	case <-s.ctx.Done():
	}
	timer := time.NewTimer(callTimeout) // gRPC itself returns at once, with the reason
	defer timer.Stop()
	select {
	case r := <-called:
		return r.stream, r.err
	case <-timer.C:
		return nil, errCallHangs
	}
}

// handshake says who connects, and perhaps which session goes on, and waits for accept.
func (s *session) handshake() error {
	asked := time.Now()
	hello := s.hello()
	if err := s.send(hello); err != nil {
		return err
	}
	accept, err := s.awaitAccept(hello.GetId(), asked)
	if err != nil {
		return err
	}
	s.w.takeTenant(s.tenant)
	s.beatInterval = max(spanOr(accept.GetHeartbeatInterval(), defaultInterval), time.Millisecond)
	s.idleTimeout = accept.GetIdleTimeout().AsDuration()
	s.w.move(accepted)
	s.w.log.Info("session accepted", "session", accept.GetSessionId(), "resumed", accept.GetResumed(),
		"coordinator", accept.GetCoordinatorVersion())
	return nil
}

// hello is the first frame. Tenant and sender are required in it, and bound to the stream from there on.
func (s *session) hello() *lessorv1.SessionRequest {
	host, _ := os.Hostname()
	s.w.lock()
	defer s.w.unlock()
	resume := s.w.mu.resume.resumeRequest(time.Now())
	s.resuming = resume != nil
	s.tenant = cmp.Or(s.w.mu.tenant, firstTenant)
	return s.frameLocked(&lessorv1.SessionRequest{
		Tenant: s.tenant,
		Sender: &lessorv1.Sender{Role: "worker", Id: s.w.cfg.Name},
		Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
			Protocol: protocolVersion,
			Worker: &lessorv1.WorkerInfo{
				Name:       s.w.cfg.Name,
				InstanceId: s.w.instance,
				Version:    clipID(s.w.cfg.Version),
				Hostname:   clipID(host),
			},
			Resume: resume,
		}},
	})
}

// firstTenant is what a worker states that does not know its tenant: the only tenant of a coordinator that asks for no credentials.
const firstTenant = "default"

// takeTenant makes the tenant of the credentials the worker's, and reports whether it could: the worker had none yet.
func (w *Worker) takeTenant(tenant string) bool {
	w.lock()
	defer w.unlock()
	if w.mu.tenant != "" {
		return false
	}
	w.mu.tenant = tenant
	return true
}

// awaitAccept reads up to the answer to the handshake, which was made at the given time. What else comes is told to be out of place, and not waited for.
func (s *session) awaitAccept(hello string, asked time.Time) (*lessorv1.Accept, error) {
	for {
		f, err := s.stream.Recv()
		if err != nil {
			return nil, s.streamError(err)
		}
		if err := s.checkEnvelope(f); err != nil {
			return nil, err
		}
		if !s.checkExpected(f) {
			continue
		}
		switch p := f.GetPayload().(type) {
		case *lessorv1.SessionResponse_Accept:
			s.accepted(f, asked)
			return p.Accept, nil
		case *lessorv1.SessionResponse_Error:
			if corr := f.GetCorr(); corr != "" && corr != hello { // about a frame of the stream before: it has overtaken an accept that was lost on its way
				continue
			}
			return nil, &frameError{p.Error}
		case *lessorv1.SessionResponse_Reset_:
			return nil, &resetError{p.Reset_}
		}
	}
}

// expects reports whether the state allows a frame, and answers one that it does not allow.
func (s *session) checkExpected(f *lessorv1.SessionResponse) bool {
	s.w.lock()
	defer s.w.unlock()
	if s.w.mu.state.expects(f) {
		return true
	}
	s.unknownLocked(f)
	return false
}

func (s *session) accepted(f *lessorv1.SessionResponse, asked time.Time) {
	now := time.Now()
	s.w.lock()
	defer s.w.unlock()
	s.lastReceived, s.w.mu.acceptedBefore = now, true
	s.transit.observe(asked, now, f.GetTs())
	s.beginOrResumeLocked(f, now)
}

// register says what the worker can do, and lets the first heartbeat follow: it renews, on the new stream, all leases
// that the worker still works under.
func (s *session) register() error {
	if err := s.send(s.registerFrame()); err != nil {
		return err
	}
	s.w.lock()
	defer s.w.unlock()
	for _, a := range s.w.mu.attempts {
		s.w.queueBeatLocked(a)
	}
	return nil
}

func (s *session) registerFrame() *lessorv1.SessionRequest {
	s.w.lock()
	defer s.w.unlock()
	capabilities, told := s.w.capabilitiesLocked()
	f := s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
		Capabilities: capabilities,
		Queues:       s.w.queues,
		WorkspaceId:  s.w.cfg.Workspace,
	}}}, time.Now())
	s.registration = f.GetId()
	s.declaredCapacity = told
	return f
}

// serve lets the reader and the writer run until one of them ends, and then the other.
func (s *session) serve() error {
	s.w.move(serving)
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

// close leaves what the next stream needs, and says why this one ended. A session that cannot go on is no reason to give
// up: the next stream begins a new one.
func (s *session) close(err error) error {
	s.w.lock()
	defer s.w.unlock()
	s.suspendLocked(err)
	if s.resuming && !s.established && tokenRefused(err) {
		return err
	}
	if refused := permanentRefusal(err, s.established, s.w.mu.acceptedBefore); refused != nil {
		return refused
	}
	return err
}

// frameLocked gives a frame its envelope.
func (s *session) frameLocked(f *lessorv1.SessionRequest) *lessorv1.SessionRequest {
	frames := &s.w.mu.resume.frameCount
	*frames++
	f.Id = strconv.FormatUint(*frames, 10)
	f.Ts = timestamppb.Now()
	return f
}

// sequencedLocked gives an envelope to a frame that must not be lost.
func (s *session) sequencedLocked(f *lessorv1.SessionRequest, now time.Time) *lessorv1.SessionRequest {
	if f.GetReports() == nil {
		f.Ack = &lessorv1.Ack{Request: true} // reports are answered anyway
	}
	s.link.track(s.frameLocked(f), now)
	return f
}
