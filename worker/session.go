package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/await"
)

// protocolVersion is the version of the session protocol that this package speaks.
const protocolVersion = 1

type sessionStream = grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]

// session is one stream, from its opening to its end. State that outlives the stream is in the
// Worker.
type session struct {
	w      *Worker
	stream sessionStream
	// ctx is the context of the stream; cancel ends the stream at once, with a cause.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// beatInterval is how often to send a heartbeat if no lease needs one. idleTimeout is how long
	// the coordinator may send nothing; 0: for ever.
	beatInterval, idleTimeout time.Duration
	// peer is the sender that the first frame with a sender named; nil before that frame.
	peer *lessorv1.Sender
	// tenant is the tenant that the handshake stated.
	tenant string
	// registration is the id of the register frame.
	registration string

	// resuming: the handshake named a session to resume.
	resuming bool
	// declaredCapacity is the last capacity that was sent to the coordinator. drainSent: the
	// coordinator was told of the drain.
	declaredCapacity capacity
	drainSent        bool

	// ended is closed when the reader has ended; until then only the reader uses readErr and
	// established. established: the coordinator has sent a frame after accept, so it has accepted
	// the registration as well.
	ended       chan struct{}
	readErr     error
	established bool

	// Guarded by Worker.mu, because both the reader and the writer need them:

	link    link
	transit transit
	// lastReceived is when the last frame arrived.
	lastReceived time.Time
	// sent holds, by id, the frames that wait for an answer.
	sent map[string]*sentFrame
	// feedbackPausedUntil is when feedback may be sent again.
	feedbackPausedUntil time.Time
	// control is sent first: error frames, which include requests for missing frames.
	control []*lessorv1.SessionRequest
}

// sentFrame is a frame that waits for its answer.
type sentFrame struct {
	id  string
	seq uint64
	// at is a time right before the frame was sent first. since is when the wait for its answer
	// began on this stream.
	at, since time.Time
	reports   []*report
	beats     []sentBeat
}

// sentBeat is the heartbeat of one lease in a frame.
type sentBeat struct {
	a *attempt
	renewal
}

// runSession opens a stream and serves it until it ends. lasted is how long the stream was served;
// 0 if it could not be opened. err says why it ended; a *RefusedError means that another session
// would be refused too.
func (w *Worker) runSession(connectTimeout time.Duration) (lasted time.Duration, err error) {
	s := &session{w: w, ended: make(chan struct{}), sent: make(map[string]*sentFrame)}
	s.ctx, s.cancel = context.WithCancelCause(w.baseCtx)
	defer s.cancel(nil)
	if err = s.open(connectTimeout); err == nil {
		opened := time.Now()
		err = s.serve()
		lasted = time.Since(opened)
	}
	return lasted, s.close(err)
}

// open connects within timeout, and then does the handshake and the registration within
// openTimeout. It stops if the worker is drained meanwhile.
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

// connect opens the stream. It waits for a connection instead of failing at once: a connection that
// failed has its own backoff (see Dial), and attempts that fail at once could miss the moment of
// the next connection again and again. If the wait ends without a connection, the status of the
// call names the reason of the last failure.
func (s *session) connect(timeout time.Duration) (err error) {
	timer := time.AfterFunc(timeout, func() { s.cancel(ErrNoConnection) })
	defer timer.Stop()
	s.stream, err = s.openStream()
	if err != nil && errors.Is(context.Cause(s.ctx), ErrNoConnection) {
		reason := strings.TrimPrefix(status.Convert(err).Message(), "latest balancer error: ")
		switch {
		case !strings.HasPrefix(reason, context.Canceled.Error()):
			return noConnectionError(reason)
		case s.w.connState() == connectivity.Ready: // gRPC has waited for nothing but a free stream
			return errNoStream
		}
		// gRPC still waits for it, or for the address of a name
		return noConnectionError(fmt.Sprintf("no answer within %v", timeout))
	}
	return err
}

// openStream calls Session. The call asks the source of credentials for a token. That source
// belongs to the program and may ignore its context. If it does, openStream returns without it, and
// the next call waits until the earlier one has returned, so that there is never more than one
// call.
func (s *session) openStream() (sessionStream, error) {
	select {
	case s.w.openingCall <- struct{}{}:
	case <-s.ctx.Done():
		return nil, errCallHangs
	}
	var stream sessionStream
	var err error
	// gRPC itself returns as soon as the context ends, with the reason
	returned := await.Return(s.ctx, callTimeout, func() {
		defer func() { <-s.w.openingCall }()
		ctx := context.WithValue(s.ctx, sentTokenKey{}, &s.w.sentToken)
		stream, err = s.w.client.Session(ctx, grpc.WaitForReady(true),
			grpc.MaxCallRecvMsgSize(maxReceived), grpc.MaxCallSendMsgSize(s.w.cfg.MaxMessageBytes))
	})
	if !returned {
		return nil, errCallHangs
	}
	return stream, err
}

// handshake names the worker and, if there is one, the session to resume, and waits for accept.
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

// hello returns the first frame. It must name the tenant and the sender, which then hold for the
// whole stream.
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

// firstTenant is the tenant that a worker states if it knows none: the only tenant of a coordinator
// that asks for no credentials.
const firstTenant = "default"

// takeTenant takes over the tenant of the credentials, and reports whether it did: it does not if
// the worker already has a tenant.
func (w *Worker) takeTenant(tenant string) bool {
	w.lock()
	defer w.unlock()
	if w.mu.tenant != "" {
		return false
	}
	w.mu.tenant = tenant
	return true
}

// awaitAccept reads frames until the answer to the handshake, which was sent at the given time. A
// frame that is not allowed before accept is answered with an error and then skipped.
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
			// about a frame of the previous stream: the accept before it was lost in transit
			if corr := f.GetCorr(); corr != "" && corr != hello {
				continue
			}
			return nil, &frameError{p.Error}
		case *lessorv1.SessionResponse_Reset_:
			return nil, s.w.handleReset(p.Reset_)
		}
	}
}

// checkExpected reports whether the state allows a frame. If not, it queues an error frame as the
// answer.
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

// register sends what the worker can do and has. The first heartbeat follows; on the new stream, it
// renews all leases that the worker still holds.
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
	capabilities, declared := s.w.capabilitiesLocked()
	f := s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
		Capabilities: capabilities,
		Queues:       s.w.queues,
		WorkspaceId:  s.w.cfg.Workspace,
		PoolId:       s.w.cfg.PoolID,

		Packages:         s.w.registeredPackagesLocked(),
		InstallsPackages: s.w.cfg.Installer != nil,
	}}}, time.Now())
	s.registration = f.GetId()
	s.declaredCapacity = declared
	return f
}

// serve runs the reader and the writer until one of them ends, and then ends the other.
func (s *session) serve() error {
	s.w.move(serving)
	// When nothing is left to do, the goodbye and its answer get goodbyeTimeout, even if the stream
	// is blocked.
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

// send sends a frame. It returns no error if the stream has ended: Recv then returns the reason.
func (s *session) send(f *lessorv1.SessionRequest) error {
	err := s.stream.Send(f)
	switch {
	case err == nil:
		if hook := s.w.cfg.Hooks.OnHeartbeat; hook != nil && f.GetHeartbeat() != nil {
			hook(f.GetHeartbeat())
		}
		return nil
	case errors.Is(err, io.EOF):
		return nil
	}
	return s.streamError(err)
}

// streamError returns why the stream ended: the cause of s.ctx, if this side ended the stream.
func (s *session) streamError(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		return errClosed
	}
	return err
}

// close keeps what the next stream needs, and returns why this one ended. If the coordinator
// refused to resume the session, that is no reason to give up: the next stream begins a new
// session.
func (s *session) close(err error) error {
	s.w.lock()
	defer s.w.unlock()
	s.suspendLocked(err)
	if s.resuming && !s.established && credentialRefused(err) {
		return err
	}
	if refused := permanentRefusal(err, s.established, s.w.mu.acceptedBefore); refused != nil {
		return refused
	}
	return err
}

// frameLocked sets the envelope of a frame.
func (s *session) frameLocked(f *lessorv1.SessionRequest) *lessorv1.SessionRequest {
	frames := &s.w.mu.resume.frameCount
	*frames++
	f.Id = strconv.FormatUint(*frames, 10)
	f.Ts = timestamppb.Now()
	return f
}

// sequencedLocked sets the envelope of a frame that must not be lost.
func (s *session) sequencedLocked(f *lessorv1.SessionRequest, now time.Time) *lessorv1.SessionRequest {
	if f.GetReports() == nil {
		f.Ack = &lessorv1.Ack{Request: true} // reports are always answered, so they need no acknowledgement
	}
	s.link.track(s.frameLocked(f), now)
	return f
}
