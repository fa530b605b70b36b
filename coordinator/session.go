package coordinator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Protocol of the session stream, and what the coordinator asks of both sides.
const (
	Protocol    = 1
	maxParallel = 10_000
	maxQueues   = 100
	maxTypes    = 1000
)

// Codes of error and reset frames beside those of errors.go; docs/protocol.md has the table (W14).
const (
	codeDenied       = "E.SESSION.DENIED"
	codeStaleBinding = "E.SESSION.STALE_BINDING"
	codeUnknown      = "E.CMD.UNKNOWN"
	codeTimeout      = "E.TIMEOUT"
	codeKicked       = "E.SESSION.KICKED"
)

// sessionState is where a session stands (W1). The worker's NEW and CLOSED have no session here.
type sessionState int

const (
	handshaking sessionState = iota // waits for the handshake, then for register
	registered
	heartbeating
	draining
)

// session is one worker's stream. Three goroutines share it:
//
//	name    does                                                    ends
//	handler waits for the end, then leaves the engine               when what is under way has been answered and sent
//	reader  takes frames one by one, in order                       when Recv fails, which the handler's return causes
//	writer  makes frames of what waits in the outbox, and sends     when the outbox is closed and empty
type session struct {
	c      *streams
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	out    *outbox
	who    identity
	size   int // bytes of the frame that the reader is at

	hushed atomic.Bool // a dispatch went unacknowledged; no work until the next frame (W5)

	heard chan struct{} // a token for every frame, for the idle timer
	busy  atomic.Bool   // the reader is at a frame: the silence is not the worker's
	over  chan error    // the first says how the session ends

	sizing sync.Mutex // one change of the slots goes to the engine after the other; taken before mu
	told   int        // slots that the engine knows of; guarded by sizing

	mu sync.Mutex // guards the rest; what only the reader writes, it reads without
	sessionView
	health wellness
	news   feedbackQueue // has a mutex of its own
	id     string        // empty before the handshake
	log    *slog.Logger
	left   bool // it has left the engine, or may no longer enter it
}

// sessionView is what is known of the worker.
type sessionView struct {
	state     sessionState
	info      *lessorv1.WorkerInfo
	caps      *lessorv1.Capabilities
	wants     engine.Wants
	slots     int // as last declared
	connected lease.Wall
	seen      lease.Wall
	drain     *lessorv1.Drain // as an operator asked; nil: none has
}

// streams serves sessions.
type streams struct {
	*edge
	engine *engine.Engine // its sessions are no business of the unary calls
	open   *sessions
}

// coordinatorName is the id of the coordinator as a sender of frames.
const coordinatorName = "coordinator"

// serve is one worker's stream from its first frame to its end; see the proto for its frames.
func (s *streams) serve(stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]) error {
	ss := &session{
		c: s, log: s.cfg.Logger, stream: stream, who: identify(stream.Context()),
		heard: make(chan struct{}, 1), over: make(chan error, 1),
	}
	now := s.engine.Now().Wall
	ss.sessionView = sessionView{connected: now, seen: now}
	ss.health = wellness{limits: s.cfg.Sessions.health(ss.who.Tenant), interval: s.cfg.Sessions.HeartbeatInterval, word: true}
	ss.out = newOutbox(ss, s.cfg.Sessions.SendTimeout)
	return ss.run()
}

// run returns when the session is over. Returning ends the stream, and with it the reader.
func (ss *session) run() error {
	written := make(chan struct{})
	go func() { defer close(written); ss.out.write() }()
	go ss.read()
	err := ss.wait()
	ss.leave(false)
	code := ss.out.close()
	if code == "" {
		code = errorCode(err)
	}
	if code != "" {
		ss.c.open.resets.WithLabelValues(code).Inc()
	}
	ss.logger().Info("session ends", "code", code, "error", err)
	select {
	case <-written:
	case <-ss.out.stuck: // it reads no more; its frames go with the stream
	}
	return err
}

// wait ends with the first cause: a word of the reader or writer, silence, or the coordinator's own end.
func (ss *session) wait() error {
	patience := ss.c.cfg.Sessions.IdleTimeout
	idle := time.NewTimer(patience)
	defer idle.Stop()
	for {
		select {
		case err := <-ss.over:
			return err
		case <-ss.heard:
			idle.Reset(patience)
		case <-idle.C:
			if ss.busy.Load() {
				idle.Reset(patience)
				continue
			}
			ss.out.reset(codeTimeout, "no frame came within "+patience.String(), 0)
			return nil
		case <-ss.c.stopping.Done():
			ss.out.reset(codeStopping, "the coordinator is stopping", time.Second)
			return nil
		case <-ss.out.stuck:
			return newStatus(codes.ResourceExhausted, codeTimeout, "the worker has read no frame within "+ss.c.cfg.Sessions.SendTimeout.String(), nil)
		case <-ss.stream.Context().Done():
			return context.Cause(ss.stream.Context())
		}
	}
}

// end says how the session ends; only the first counts.
func (ss *session) end(err error) {
	select {
	case ss.over <- err:
	default:
	}
}

// leave takes the session out of the engine and the register. A lost stream alone revokes nothing (W8), a goodbye gives all leases
// back at once (W9). The first call does it.
func (ss *session) leave(goodbye bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.left = true
	ss.health.stop()
	ss.c.open.remove(ss)
	_ = ss.c.engine.Leave(ss.who.Tenant, ss.id, goodbye) // a stopped engine knows no sessions
}

func (ss *session) read() {
	for {
		var f frame
		if err := ss.stream.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) { // the worker has closed its side
				err = nil
			}
			ss.end(err) // the stream is lost, or a message is over the limit
			return
		}
		select {
		case ss.heard <- struct{}{}:
		default:
		}
		ss.busy.Store(true)
		goOn := ss.take(&f)
		ss.busy.Store(false)
		if !goOn {
			ss.end(nil)
			return
		}
	}
}

func (ss *session) current() sessionState {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.state
}

func (ss *session) setState(to sessionState) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.state = to
}

// logger is for those that do not own the session's log.
func (ss *session) logger() *slog.Logger {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.log
}
