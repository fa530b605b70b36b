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
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// How long the coordinator waits for a worker.
const (
	handshakeWithin = 10 * time.Second       // for its handshake, from the beginning of the stream
	resetWithin     = 500 * time.Millisecond // to read the last frame, after its credential has ended
)

// Session is one worker's stream. Its resumeState holds what outlives the stream. Three goroutines
// share a Session:
//
//	name    does                                                    ends
//	handler waits for the end of the session, leaves the engine     when all pending answers are sent
//	reader  handles the frames of the worker one by one, in order   when Recv fails, which the handler's return causes
//	writer  makes frames from the outbox and sends them             when the outbox is empty; a new writer starts when it no longer is
//
// Until the handshake is accepted there is no writer: the reader itself sends the answers.
type Session struct {
	// These do not change.
	srv    *Server
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	who    Caller
	opened time.Time

	// Only the reader uses these.
	size       int    // bytes of the frame that it handles
	acks       acks   // leases that this frame acknowledges, until the engine gets the acknowledgements
	bound      bool   // a frame had an acceptable tenant and sender, to which later frames are bound
	sender     string // id of that sender
	unnumbered int    // number of frames without a seq that it has sent

	writer  streamWriter
	sending sync.Mutex    // held while a frame is sent
	slow    *time.Timer   // closes stuck; runs while a frame is sent
	stuck   chan struct{} // closed when the worker did not read a frame in time
	giveUp  func()        // closes stuck
	written chan struct{} // closed when the last writer has ended

	// asksTenant: its first frame states another tenant than the caller's. A worker can find out
	// its tenant in this way.
	asksTenant  atomic.Bool
	fines       fines                  // delay of this stream because of refused frames and reports
	awaitsFrame atomic.Bool            // the worker was silent until a lease ended; no work until it sends a frame (W5, W9)
	heard       atomic.Int64           // when the last frame came: nanoseconds since opened
	busy        atomic.Bool            // the reader handles a frame, so the worker is not silent
	noWork      atomic.Pointer[string] // why the engine has 0 slots of it; nil or empty: the worker offers none
	ended       chan error             // holds one: how the session ends; later errors are dropped

	slotsMu waitLock // held while a change of the slots or packages goes to the engine
	// What the engine knows of; guarded by slotsMu.
	engineSlots    int
	enginePackages []string // NAME@VERSION, sorted

	// Of the session. adopt sets them, with mu held, when the handshake is accepted. They do not
	// change afterwards.
	id        string
	in        *incoming
	out       *outbox // nil before the handshake
	packages  *inventory
	feeds     *feedbackQueue
	admission admission

	mu sync.Mutex // guards the rest. The reader reads without mu what only the reader writes
	view
	health     workerHealth
	log        *slog.Logger
	member     *engine.Member  // nil before register; written with slotsMu held, too
	left       bool            // the session has left the engine, or may not join it any more
	forGood    bool            // the worker will not resume this session
	finalReset *lessorv1.Reset // the reset to send as the last frame; nil: none
}

// view is what operators see of the worker, and what the worker has registered.
type view struct {
	state      sessionState
	info       *lessorv1.WorkerInfo
	caps       *lessorv1.Capabilities
	wants      engine.Wants
	pool       string
	installs   bool // it carries out pkg_install and pkg_uninstall
	slots      int  // max_parallel as the worker declared it last
	connected  lease.Wall
	seen       lease.Wall
	drainAsked *lessorv1.Drain // the drain that an operator asked for; nil: none
}

// run returns when the session has ended. Its return ends the stream, and so the reader.
func (ss *Session) run() error {
	go ss.read()
	err := ss.wait()
	accepted := ss.leave(false)
	reset := ss.resetFrame().GetReset_()
	code := cmp.Or(reset.GetCode(), refusal.CodeOf(err))
	// every start of a worker that does not know its tenant begins with such a session, which
	// envelope has logged
	if !ss.asksTenant.Load() {
		if code != "" {
			ss.srv.Registry.resets.WithLabelValues(code).Inc()
		}
		ss.logEnd(code, reset.GetReason(), err)
	}
	if !accepted {
		ss.sendReset()
		return err
	}
	ss.out.close(&ss.writer)
	select {
	case <-ss.written:
	case <-ss.stuck: // the worker does not read; its frames wait for the next stream
	}
	ss.srv.resumes.leave(ss.admission.state, ss, ss.doneForGood())
	return err
}

// logEnd logs the end of the session: its code, and why it was reset or else with which error it
// ended. A session that simply ends has none of these.
func (ss *Session) logEnd(code, reason string, err error) {
	var why []any
	if code != "" {
		why = append(why, "code", code)
	}
	switch {
	case reason != "":
		why = append(why, "reason", reason)
	case errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled:
		// its text does not say what was cancelled, nor that nobody asked for it
		why = append(why, "error", "the stream was lost")
	case err != nil:
		why = append(why, "error", err)
	}
	ss.logger().Info("session ends", why...)
}

// sendTimedOut ends a session because a frame could not be sent within SendTimeout: the worker does
// not read.
func (ss *Session) sendTimedOut() {
	ss.end(refusal.New(codes.ResourceExhausted, refusal.CodeTimeout,
		"the worker has read no frame within "+ss.srv.Config.SendTimeout.String(), nil))
	close(ss.stuck)
}

// wait returns at the first cause to end the session: a call of end, silence of the worker, the
// stop of the coordinator, or the end of the stream's context.
func (ss *Session) wait() error {
	left, _ := ss.patience()
	silence := time.NewTimer(left)
	defer silence.Stop()
	for {
		select {
		case err := <-ss.ended:
			return ss.endLost(err)
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
			return ss.endLost(context.Cause(ss.stream.Context()))
		}
	}
}

// patience returns how long the worker may still be silent, and words for what is missing when that
// time has passed.
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

// endLost returns the status of a stream that was lost with err. If the stream ends because the
// worker's credential has ended, endLost also sends a reset that says so. The worker has only
// resetWithin to read it, because the stream must end within a second (X3).
func (ss *Session) endLost(err error) error {
	ended := auth.Ended(ss.stream.Context())
	if ended == nil {
		return err
	}
	ss.reset(refusal.CodeToken, ended.Error(), 0)
	time.AfterFunc(resetWithin, ss.giveUp)
	return refusal.Status(ended)
}

// end makes the session end with the status err. Only the first call has an effect.
func (ss *Session) end(err error) {
	select {
	case ss.ended <- err:
	default:
	}
}

// reset ends the session on behalf of the coordinator: all pending answers are sent, then a reset
// frame says why. Only the first call has an effect. If retryAfter is 0, the worker's own backoff
// decides when it connects again.
func (ss *Session) reset(code, reason string, retryAfter time.Duration) {
	ss.resetWith(&lessorv1.Reset{Code: code, Reason: reason, RetryAfter: convert.Span(retryAfter)})
}

// resetWith is reset with this frame.
func (ss *Session) resetWith(r *lessorv1.Reset) {
	ss.mu.Lock()
	if ss.finalReset == nil {
		ss.finalReset = r
	}
	ss.mu.Unlock()
	ss.end(nil)
}

// displaced ends the stream because a newer stream resumes its session or comes from the same
// instance, or because another instance replaces its own (W8). why says which.
func (ss *Session) displaced(why string) {
	ss.reset(refusal.CodeStaleBinding, why, 0)
}

func (ss *Session) doneForGood() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.forGood
}

// sendReset sends the reset frame on a stream whose handshake was never accepted, unless the reader
// is sending another frame.
func (ss *Session) sendReset() {
	if m := ss.resetFrame(); m != nil && ss.sending.TryLock() {
		defer ss.sending.Unlock()
		_ = ss.sendLocked(m) // the stream ends anyway
	}
}

// leave removes the session from the engine and the registry. A lost stream alone ends no lease
// (W8); with goodbye, the leases end at once and their tasks go back to the queue (W9). leave may
// be called twice: by the goodbye frame, and at the end of the stream. It reports whether a
// handshake was accepted.
func (ss *Session) leave(goodbye bool) (accepted bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.left = true
	ss.health.stop()
	ss.forGood = ss.forGood || goodbye
	ss.srv.Registry.remove(ss)
	switch {
	case ss.member != nil:
		ss.srv.Engine.Leave(ss.member, goodbye)
	case goodbye && ss.admission.resumed:
		ss.srv.Engine.Dismiss(ss.who.Tenant, ss.id)
	}
	return ss.out != nil
}

// recoverPanic recovers a panic of the reader or writer and ends only their stream: an unexpected
// frame must not end the coordinator.
func (ss *Session) recoverPanic() {
	if p := recover(); p != nil {
		ss.logger().Error("panic in a session", "panic", p, "stack", string(debug.Stack()))
		ss.end(refusal.New(codes.Internal, refusal.CodeInternal, "internal error", nil))
	}
}

func (ss *Session) read() {
	defer ss.recoverPanic()
	defer ss.forgetFrames()
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
		goOn := ss.payFines() && ss.takeFrame(&f)
		ss.busy.Store(false)
		if !goOn {
			ss.end(nil)
			return
		}
	}
}

// forgetFrames is called when the reader takes no more frames. It is the reader's, because another
// goroutine would wait here for the frame that it handles.
func (ss *Session) forgetFrames() {
	if ss.in != nil {
		ss.in.ended(ss)
	}
}

func (ss *Session) current() sessionState {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.state
}

// logger returns the log for goroutines other than the reader. The reader may read ss.log directly,
// because only the reader writes it.
func (ss *Session) logger() *slog.Logger {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.log
}
