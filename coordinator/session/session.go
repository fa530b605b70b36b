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

// Waits for a worker.
const (
	handshakeWithin = 10 * time.Second
	farewellWithin  = 500 * time.Millisecond // for the reset to reach one whose credential has ended
)

// Session is one worker's stream; what outlives it is in its dialog. Three goroutines share it:
//
//	name    does                                                    ends
//	handler waits for the end, then leaves the engine               when what is under way has been answered and sent
//	reader  takes frames one by one, in order                       when Recv fails, which the handler's return causes
//	writer  makes frames of what waits in the outbox, and sends     when nothing waits; the next one begins when something does
//
// Before there is a session, the reader itself says what is to be said.
type Session struct {
	c      *Server
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	who    Caller
	size   int  // bytes of the frame that the reader is at
	acks   acks // of that frame, not yet judged

	writing bool // a writer is at work, or the reader is that of a stream without a session; guarded by outbox.mu
	closing bool // nothing more is taken on this stream; guarded by outbox.mu

	sending    sync.Mutex    // held while a frame is sent
	slow       *time.Timer   // closes stuck; runs while a frame is sent
	stuck      chan struct{} // closed when a frame was not read in time
	giveUp     func()        // closes stuck
	written    chan struct{} // closed when the last writer has ended
	unnumbered int           // frames that the reader has sent itself

	fines  fines       // for what was refused
	hushed atomic.Bool // a dispatch went unacknowledged; no work until the next frame (W5)

	opened time.Time
	heard  atomic.Int64 // when the last frame came: nanoseconds since opened
	busy   atomic.Bool  // the reader is at a frame: the silence is not the worker's
	over   chan error   // the first says how the session ends

	sizing sync.Mutex // one change of the slots goes to the engine after the other; taken before mu
	told   int        // slots that the engine knows of; guarded by sizing

	mu sync.Mutex // guards the rest; what only the reader writes, it reads without
	view
	health    wellness
	news      feedbackQueue // has a mutex of its own
	admission               // its dialog is nil before the handshake
	log       *slog.Logger
	member    *engine.Member  // nil before register
	left      bool            // it has left the engine, or may no longer enter it
	forGood   bool            // the worker will not come back to this session
	last      *lessorv1.Reset // what the last frame will be; nil: none
}

// view is what is known of the worker.
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
		ss.c.Open.resets.WithLabelValues(code).Inc()
	}
	ss.logger().Info("session ends", "code", code, "error", err)
	if d == nil {
		ss.dismiss()
		return err
	}
	d.out.close(ss)
	select {
	case <-ss.written:
	case <-ss.stuck: // it reads no more; its frames wait for the next stream
	}
	ss.c.dialogs.leave(d, ss, ss.doneForGood())
	return err
}

// unread ends a session whose worker does not read: a frame could not be sent in time.
func (ss *Session) unread() {
	ss.end(refusal.New(codes.ResourceExhausted, refusal.CodeTimeout, "the worker has read no frame within "+ss.c.Config.SendTimeout.String(), nil))
	close(ss.stuck)
}

// wait ends with the first cause: a word of the reader or writer, silence, or the coordinator's own end.
func (ss *Session) wait() error {
	left, _ := ss.patience()
	silence := time.NewTimer(left)
	defer silence.Stop()
	for {
		select {
		case err := <-ss.over:
			return ss.lost(err)
		case <-silence.C:
			left, why := ss.patience()
			if left > 0 {
				silence.Reset(left)
				continue
			}
			ss.reset(refusal.CodeTimeout, why, 0)
		case <-ss.c.Stopping.Done():
			ss.reset(refusal.CodeStopping, "the coordinator is stopping", time.Second)
			return nil
		case <-ss.stream.Context().Done():
			return ss.lost(context.Cause(ss.stream.Context()))
		}
	}
}

// patience is how long the worker may still be silent, and what is missing if it is.
func (ss *Session) patience() (left time.Duration, missing string) {
	age, idle := time.Since(ss.opened), ss.c.Config.IdleTimeout
	if left = idle; !ss.busy.Load() {
		left -= age - time.Duration(ss.heard.Load())
	}
	missing = "no frame came within " + idle.String()
	if greeting := handshakeWithin - age; ss.current() == opening && greeting < left {
		left, missing = greeting, "no handshake came within "+handshakeWithin.String()
	}
	return left, missing
}

// lost is how a session ends by err. One whose credential has ended is told so, and not waited for: it is over within a second (X3).
func (ss *Session) lost(err error) error {
	ended := auth.Ended(ss.stream.Context())
	if ended == nil {
		return err
	}
	ss.reset(refusal.CodeToken, ended.Error(), 0)
	time.AfterFunc(farewellWithin, ss.giveUp)
	return refusal.Status(ended)
}

// end says how the session ends; only the first counts.
func (ss *Session) end(err error) {
	select {
	case ss.over <- err:
	default:
	}
}

// reset ends the session from the side of the coordinator: what is under way is answered, then a last frame says why. The first word counts.
func (ss *Session) reset(code, reason string, retryAfter time.Duration) {
	ss.mu.Lock()
	if ss.last == nil {
		ss.last = &lessorv1.Reset{Code: code, Reason: reason, RetryAfter: durationpb.New(retryAfter)}
	}
	ss.mu.Unlock()
	ss.end(nil)
}

// displaced ends the stream in favour of one that goes on with its session, or is of the same instance (W8).
func (ss *Session) displaced() {
	ss.reset(refusal.CodeStaleBinding, "a newer stream of this instance has taken over", 0)
}

// resetCode is the code of the reset that will be the last frame; empty: none.
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

// dismiss says the last word on a stream that never had a session, unless the reader is still saying something.
func (ss *Session) dismiss() {
	if m := ss.farewell(); m != nil && ss.sending.TryLock() {
		defer ss.sending.Unlock()
		_ = ss.sendLocked(m) // the stream ends anyway
	}
}

// leave takes the session out of the engine and the register. A lost stream alone revokes nothing (W8), a goodbye gives all leases
// back at once (W9). The first call does it. It returns the session's dialog; nil where there was no handshake.
func (ss *Session) leave(goodbye bool) *dialog {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.left = true
	ss.health.stop()
	ss.forGood = ss.forGood || goodbye
	ss.c.Open.remove(ss)
	switch { // a stopped engine knows no sessions
	case ss.member != nil:
		_ = ss.c.Engine.Leave(ss.member, goodbye)
	case goodbye && ss.resumed:
		_ = ss.c.Engine.Dismiss(ss.who.Tenant, ss.id)
	}
	return ss.dialog
}

// caught ends a stream whose reader or writer panics, and no other: a frame that nobody thought of must not end the coordinator.
func (ss *Session) caught() {
	if p := recover(); p != nil {
		ss.logger().Error("panic in a session", "panic", p, "stack", string(debug.Stack()))
		ss.end(refusal.New(codes.Internal, refusal.CodeInternal, "internal error", nil))
	}
}

func (ss *Session) read() {
	defer ss.caught()
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
		goOn := ss.atone() && ss.take(&f)
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

// logger is for those that do not own the session's log.
func (ss *Session) logger() *slog.Logger {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.log
}
