package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lessor-dev/lessor/internal/detail"
)

// Run connects, takes tasks and runs their handlers until ctx ends or an operator drains the
// worker, and then drains. A drain has these steps: the worker takes no new work; running handlers,
// and the Installer, may go on for Config.DrainTimeout; then their contexts end with ErrDraining;
// the worker waits at most Config.StopTimeout for handlers and verdicts; it says goodbye to the
// coordinator, and Run returns nil. Drain does the same, and can shorten a drain. If Run returns
// nil although neither ctx has ended nor Drain was called, an operator drained the worker. The
// process should then exit normally and not be restarted, because the drain ends with the process.
// The contexts of handlers have the values of ctx, but do not end with it.
//
// A broken stream ends nothing: handlers go on while their leases live, and Run reconnects with
// growing waits. Run returns an error if it cannot go on, or if the drain had to give something up:
// a *RefusedError if the coordinator refuses the worker for good, see there; ErrStuck for handlers
// that were still running at the end, and ErrUndelivered for reports without a verdict;
// ErrAlreadyRun; ErrConnClosed. What is given up before a drain is only told to Hooks.OnError.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	defer w.setDrained()
	stop := context.AfterFunc(ctx, func() { w.beginDrain(stoppingReason, w.cfg.DrainTimeout) })
	defer stop()
	for _, timeout := range w.mu.drain.early { // only Drain before Run adds to it
		w.beginDrain(stoppingReason, timeout)
	}
	err := w.serve()
	w.move(ended)
	return err
}

// begin prepares the one run that a worker may have.
func (w *Worker) begin(ctx context.Context) error {
	w.lock()
	defer w.unlock()
	if w.mu.runCalled {
		return ErrAlreadyRun
	}
	if len(w.handlers) == 0 && w.fallback == nil {
		return errors.New("worker: no handler was registered")
	}
	if err := firstError(maps.Keys(w.handlers), func(t string) error { return checkID("the type of a handler", t) }); err != nil {
		return err
	}
	w.mu.runCalled = true
	w.warnOfLimitsLocked()
	w.startedAt = time.Now()
	w.baseCtx = context.WithoutCancel(ctx)
	w.drained, w.setDrained = context.WithCancel(w.baseCtx)
	return nil
}

// serve runs one session after another until the worker is drained or refused.
func (w *Worker) serve() error {
	retry := backoff{least: w.cfg.MinBackoff, most: w.cfg.MaxBackoff}
	var refusedAt time.Time // when the first session was refused since one was served
	for {
		lasted, err := w.runSession(min(firstConnectTimeout<<min(retry.failures, 10), openTimeout))
		if w.drained.Err() != nil {
			return w.drainResult()
		}
		if errors.Is(err, errTenantTaken) { // the coordinator can be reached: no need to wait
			w.move(broken)
			w.move(waited)
			continue
		}
		refused, isRefusal := errors.AsType[*RefusedError](err)
		switch {
		case !isRefusal && lasted > 0:
			refusedAt = time.Time{}
		case isRefusal && refusedAt.IsZero():
			refusedAt = time.Now()
		}
		if isRefusal && !w.awaitsCredential(refused, time.Since(refusedAt)) {
			return w.abort(refused)
		}
		if w.connClosed() {
			return w.abort(ErrConnClosed)
		}
		// The sum, so that workers that were told the same do not all come back at the same moment.
		w.pause(err, w.shortenedByLeases(retryAfterOf(err)+retry.next(lasted)))
	}
}

// shortenedByLeases returns how long to wait for the next session, which is wait unless leases
// would end meanwhile: then it is a part of the time that the first of them has left, so that there
// is time for another try. Less than the smallest backoff it is not.
func (w *Worker) shortenedByLeases(wait time.Duration) time.Duration {
	w.lock()
	defer w.unlock()
	now := time.Now()
	for _, a := range w.mu.attempts { // also those with an outcome that must arrive before their lease ends
		if left := a.lease.left(now); left > 0 {
			wait = min(wait, max(backoffWait(0, left/4, left/4), w.cfg.MinBackoff/2))
		}
	}
	return wait
}

// connClosed reports whether the caller has closed the connection, so that no session can be opened
// any more.
func (w *Worker) connClosed() bool { return w.connState() == connectivity.Shutdown }

// connState returns the state of the connection; Idle if it is of a type that has none.
func (w *Worker) connState() connectivity.State {
	if conn, ok := w.conn.(interface{ GetState() connectivity.State }); ok {
		return conn.GetState()
	}
	return connectivity.Idle
}

// pause waits between two sessions.
func (w *Worker) pause(cause error, wait time.Duration) {
	w.move(broken)
	reset, _ := errors.AsType[*resetError](cause)
	switch {
	case detail.ClosedByAge(cause):
		w.log.Info("connection closed by the coordinator because of its age, reconnecting", "wait", wait)
	case reset != nil && reset.frame.GetCode() == codeInvalidToken:
		// if there is no new one, the next session is refused, and that is told
		w.log.Info("the credential of the session has ended, reconnecting with the present one",
			"why", reset.frame.GetReason(), "wait", wait)
	default:
		what := "session ended, reconnecting"
		if errors.Is(cause, ErrNoConnection) {
			what = "cannot connect, trying again"
		}
		w.log.Warn(what, "error", lossText(cause), "wait", wait)
		w.callOnError(fmt.Errorf("session ended: %w", cause))
	}
	ctx, cancel := context.WithTimeout(w.drained, wait)
	defer cancel()
	if sent := w.sentToken.Load(); sent != nil && needsCredential(cause) {
		sent.awaitAnother(ctx)
	} else {
		<-ctx.Done()
	}
	w.move(waited)
}
