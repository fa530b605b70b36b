package session

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// How long a worker is waited for.
const (
	handshakeWithin = 10 * time.Second       // for the handshake, from the beginning of the stream
	resetWithin     = 500 * time.Millisecond // for the last frame to go out, once the worker's credential has ended
)

// Session is one worker's stream. What outlives the stream is in its resumeState. Three goroutines share a Session:
//
//	name    does                                                    ends
//	handler waits for the end, then leaves the engine               when what is under way has been answered and sent
//	reader  takes frames one by one, in order                       when Recv fails, which the handler's return causes
//	writer  makes frames of what waits in the outbox, and sends     when nothing waits; the next one begins when something does
//
// Until the handshake is accepted there is no writer: the reader itself sends what has to be sent.
type Session struct {
	srv    *Server
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	who    Caller
	size   int  // bytes of the frame that the reader is at
	acks   acks // leases that this frame acknowledges, until they are judged
	asking bool // its first frame states another tenant than the caller's: a worker may ask for its tenant in this way

	writing bool // a writer is at work, or the handshake is not accepted yet and the reader sends; guarded by outbox.mu
	closing bool // nothing more is taken on this stream; guarded by outbox.mu

	sending    sync.Mutex    // held while a frame is sent
	slow       *time.Timer   // closes stuck; runs while a frame is sent
	stuck      chan struct{} // closed when a frame was not read in time
	giveUp     func()        // closes stuck
	written    chan struct{} // closed when the last writer has ended
	unnumbered int           // number of frames that the reader has sent itself

	fines       fines       // for what was refused
	awaitsFrame atomic.Bool // a dispatch went unacknowledged; no work until the next frame (W5)

	opened time.Time
	heard  atomic.Int64 // when the last frame came: nanoseconds since opened
	busy   atomic.Bool  // the reader is at a frame: the silence is not the worker's
	over   chan error   // holds one: how the session ends; later errors are dropped

	sizing    sync.Mutex // one change of the slots goes to the engine after the other; taken before mu
	toldSlots int        // slots that the engine knows of; guarded by sizing

	mu sync.Mutex // guards the rest; what only the reader writes, it reads without
	view
	health    workerHealth
	news      feedbackQueue // has a mutex of its own
	admission               // its resumeState is nil before the handshake
	log       *slog.Logger
	member    *engine.Member  // nil before register
	left      bool            // it has left the engine, or may no longer enter it
	forGood   bool            // the worker will not come back to this session
	last      *lessorv1.Reset // the reset to send as the last frame; nil: none
}

// view is what operators are shown of the worker, and what it has registered.
type view struct {
	state     sessionState
	info      *lessorv1.WorkerInfo
	caps      *lessorv1.Capabilities
	wants     engine.Wants
	pool      string
	slots     int // as last declared
	connected lease.Wall
	seen      lease.Wall
	drain     *lessorv1.Drain // as an operator asked; nil: none has
}

// run returns when the session is over. Returning ends the stream, and with it the reader.
func (ss *Session) run() error {
	go ss.read()
	err := ss.wait()
	d := ss.leave(false)
	code := cmp.Or(ss.resetCode(), refusal.CodeOf(err))
	if code != "" {
		ss.srv.Registry.resets.WithLabelValues(code).Inc()
	}
	ss.logger().Info("session ends", "code", code, "error", err)
	if d == nil {
		ss.sendReset()
		return err
	}
	d.out.close(ss)
	select {
	case <-ss.written:
	case <-ss.stuck: // the worker does not read any more; its frames wait for the next stream
	}
	ss.srv.resumes.leave(d, ss, ss.doneForGood())
	return err
}

// sendTimedOut ends a session whose worker does not read: a frame could not be sent in time.
func (ss *Session) sendTimedOut() {
	ss.end(refusal.New(codes.ResourceExhausted, refusal.CodeTimeout, "the worker has read no frame within "+ss.srv.Config.SendTimeout.String(), nil))
	close(ss.stuck)
}

// wait returns at the first cause for an end: what the reader or writer passed to end, silence of the worker, or the stop of the coordinator.
func (ss *Session) wait() error {
	left, _ := ss.patience()
	silence := time.NewTimer(left)
	defer silence.Stop()
	for {
		select {
		case err := <-ss.over:
			return ss.lostStatus(err)
		case <-silence.C:
			left, why := ss.patience()
			if left > 0 {
				silence.Reset(left)
				continue
			}
			ss.reset(refusal.CodeTimeout, why, 0)
		case <-ss.srv.Stopping.Done():
			ss.reset(refusal.CodeStopping, "the coordinator is stopping", time.Second)
			return nil
		case <-ss.stream.Context().Done():
			return ss.lostStatus(context.Cause(ss.stream.Context()))
		}
	}
}

// patience returns how long the worker may still be silent, and what is missing when that time is over.
func (ss *Session) patience() (left time.Duration, missing string) {
	age, idle := time.Since(ss.opened), ss.srv.Config.IdleTimeout
	if left = idle; !ss.busy.Load() {
		left -= age - time.Duration(ss.heard.Load())
	}
	missing = "no frame came within " + idle.String()
	if greeting := handshakeWithin - age; ss.current() == opening && greeting < left {
		left, missing = greeting, "no handshake came within "+handshakeWithin.String()
	}
	return left, missing
}

// lostStatus returns the status with which a stream ends that was lost with err. If the reason is that the credential has ended, the worker is told so, but
// not waited for: the stream is over within a second (X3).
func (ss *Session) lostStatus(err error) error {
	ended := auth.Ended(ss.stream.Context())
	if ended == nil {
		return err
	}
	ss.reset(refusal.CodeToken, ended.Error(), 0)
	time.AfterFunc(resetWithin, ss.giveUp)
	return refusal.Status(ended)
}

// end makes the session end with err. Only the first call counts.
func (ss *Session) end(err error) {
	select {
	case ss.over <- err:
	default:
	}
}

// reset ends the session from the side of the coordinator: what is under way is answered, then a last frame says why. Only the first call counts.
func (ss *Session) reset(code, reason string, retryAfter time.Duration) {
	ss.mu.Lock()
	if ss.last == nil {
		ss.last = &lessorv1.Reset{Code: code, Reason: reason, RetryAfter: durationpb.New(retryAfter)}
	}
	ss.mu.Unlock()
	ss.end(nil)
}

// displaced ends the stream in favour of a newer one that goes on with its session, or comes from the same instance (W8).
func (ss *Session) displaced() {
	ss.reset(refusal.CodeStaleBinding, "a newer stream of this instance has taken over", 0)
}

// resetCode returns the code of the reset that will be the last frame; "" if there will be none.
func (ss *Session) resetCode() string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.last.GetCode()
}

func (ss *Session) doneForGood() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.forGood
}

// sendReset sends the last frame on a stream whose handshake was never accepted, unless the reader is just sending another one.
func (ss *Session) sendReset() {
	if m := ss.resetFrame(); m != nil && ss.sending.TryLock() {
		defer ss.sending.Unlock()
		_ = ss.sendLocked(m) // the stream ends anyway
	}
}

// leave takes the session out of the engine and the registry. A lost stream alone revokes nothing (W8); with goodbye, all leases are given back at
// once (W9). It may be called again: the goodbye and the end of the stream both do. It returns the resumeState; nil if no handshake was accepted.
func (ss *Session) leave(goodbye bool) *resumeState {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.left = true
	ss.health.stop()
	ss.forGood = ss.forGood || goodbye
	ss.srv.Registry.remove(ss)
	switch { // the errors are ignored: a stopped engine knows no sessions
	case ss.member != nil:
		_ = ss.srv.Engine.Leave(ss.member, goodbye)
	case goodbye && ss.resumed:
		_ = ss.srv.Engine.Dismiss(ss.who.Tenant, ss.id)
	}
	return ss.resumeState
}

// recoverPanic recovers a panic of the reader or writer and ends only their stream: a frame that nobody thought of must not end the coordinator.
func (ss *Session) recoverPanic() {
	if p := recover(); p != nil {
		ss.logger().Error("panic in a session", "panic", p, "stack", string(debug.Stack()))
		ss.end(refusal.New(codes.Internal, refusal.CodeInternal, "internal error", nil))
	}
}

func (ss *Session) read() {
	defer ss.recoverPanic()
	for {
		var f Frame
		if err := ss.stream.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) { // the worker has closed its side
				err = nil
			}
			ss.end(err) // the stream is lost, or a message is over the limit
			return
		}
		ss.heard.Store(int64(time.Since(ss.opened)))
		ss.busy.Store(true)
		goOn := ss.payFines() && ss.take(&f)
		ss.busy.Store(false)
		if !goOn {
			ss.end(nil)
			return
		}
	}
}

func (ss *Session) current() sessionState {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.state
}

func (ss *Session) setState(to sessionState) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.state = to
}

// logger returns the log, for goroutines other than the reader, which alone writes ss.log and may read it directly.
func (ss *Session) logger() *slog.Logger {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.log
}
