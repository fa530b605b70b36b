package worker

import (
	"context"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// phase is how far one attempt has come in this worker. It only moves forward.
type phase int

const (
	// waiting for a slot.
	waiting phase = iota
	// executing: the handler runs, and the lease is live as far as this worker knows.
	executing
	// lapsed: the lease has expired by this process's own clock, and the coordinator has not said
	// that it is lost. The handler's context has ended, but if the handler still returns a result,
	// that is reported.
	lapsed
	// reporting: the handler has returned; its outcome has no verdict yet. Heartbeats have ended
	// (K4).
	reporting
	// over: there is a verdict, or the lease was lost. The handler may still run, but its result is
	// ignored.
	over
)

// attempt is one lease in this worker, from its dispatch to its verdict or its loss.
type attempt struct {
	w       *Worker
	task    Task
	leaseID string
	// interval is the heartbeat interval of the lease.
	interval time.Duration
	handler  Handler

	// ctx is the handler's context; stop ends it with a cause.
	ctx      context.Context
	stop     context.CancelCauseFunc
	feedback feedback

	// Everything below is guarded by Worker.mu.

	phase phase
	lease lease
	// begun is when the handler was called; zero before that.
	begun time.Time
	// token is the newest task token that the coordinator sent.
	token taskToken
	// loss is why the lease was lost, or lapsed, before the handler returned; nil if it was not.
	// lost is closed when loss is set; it is made when somebody first asks for it.
	loss *StopError
	lost chan struct{}
	// cancelled is set once the coordinator has asked to cancel the task, for cancelReason.
	cancelled    *StopError
	cancelReason string
	renewals     renewals
	// firstAnswer gets the answer to the first heartbeat, for which the handler waits; nil if it
	// need not. Set once, before the attempt is served.
	firstAnswer chan error
	// feedbackQueued: feedback waits in the outbox.
	feedbackQueued bool
	artifacts      []*lessorv1.Artifact
	// badArtifact is the error of the first artifact that could not be sent; nil if all could.
	badArtifact error
	// goroutineDone: the goroutine that served the attempt has finished with it. stuck: the handler
	// still ran stuckAfter after it had lost its lease, or when another attempt had waited for its
	// slot for long enough.
	goroutineDone, stuck bool

	// flies: the attempt counts in Worker.mu.flights.
	flies bool
	// hasSlot: the attempt has a slot. slotReady is closed when it gets one; nil if it did not have
	// to wait.
	hasSlot   bool
	slotReady chan struct{}

	// timer fires at timerAt: when the next heartbeat is due (beatAt) or when the lease expires,
	// whichever is first. There is one timer for both, because most handlers return before either.
	timer           *time.Timer
	timerAt, beatAt time.Time
	// graceTimer fires when the grace of a cancel is over, stuckTimer when the handler counts as
	// stuck.
	graceTimer, stuckTimer *time.Timer
}

// newAttemptLocked makes the attempt for an assignment that was received at the given time and was
// in transit for at most maxTransit.
func (w *Worker) newAttemptLocked(asg *lessorv1.Assignment, received time.Time, maxTransit time.Duration) *attempt {
	a := &attempt{
		w:        w,
		leaseID:  asg.GetLeaseId(),
		token:    tokenOf(asg.GetTaskToken(), asg.GetTokenExpiresAt()),
		interval: max(spanOr(asg.GetHeartbeatInterval(), defaultInterval), time.Millisecond),
	}
	a.task.fill(a, asg)
	a.handler = w.handlerFor(a.task.Type)
	a.ctx, a.stop = context.WithCancelCause(w.baseCtx)
	a.feedback.limit, a.feedback.owner = min(w.cfg.OutputBuffer, w.mu.maxMessage/4), a
	// The length of the lease when it was granted: attempt_timeout cuts it (A3). So may the
	// deadline, but then the age is not known, and the dispatch does not count as recent.
	length, timeout := spanOr(asg.GetHeartbeatTimeout(), defaultTTL),
		asg.GetTask().GetSpec().GetAttemptTimeout().AsDuration()
	if timeout > 0 {
		length = min(length, timeout)
	}
	a.lease = grantedLease(received, spanOr(asg.GetExpiresIn(), length), length, maxTransit)
	a.lease.limits = limitsOf(asg, received)
	a.lease.endByDeadline()
	if by, ok := a.lease.byDeadline(); ok {
		a.ctx = limitedContext{a.ctx, by}
	}
	return a
}

// limitedContext is a context that says when the attempt ends at the latest. It does not end by
// itself: the end of the lease, which is never later, ends it, with a cause. Contexts that are made
// of it rely on that: they forget a later Deadline of their own.
type limitedContext struct {
	context.Context
	limit time.Time
}

// Deadline returns the limit.
func (c limitedContext) Deadline() (time.Time, bool) { return c.limit, true }

// held reports whether, as far as this worker knows, the attempt still holds its lease and has no
// outcome yet.
func (a *attempt) held() bool { return a.phase == waiting || a.phase == executing }

// checkHeld returns nil while the attempt is held, and else the reason why it is not.
func (a *attempt) checkHeld() error {
	switch {
	case a.loss != nil:
		return a.loss
	case !a.held():
		return ErrFinished
	}
	return nil
}

// handleAnswerLocked processes the answer to a Start or Heartbeat that was sent at the given time.
// A nil error means that the lease was live.
func (w *Worker) handleAnswerLocked(a *attempt, asked time.Time, ans answer) error {
	if a.cancelReason == "" {
		a.cancelReason = ans.GetCancelReason()
	}
	switch {
	case ans.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED:
		w.renewLocked(a, asked, ans.GetExpiresIn().AsDuration())
		if token := tokenOf(ans.GetTaskToken(), ans.GetTokenExpiresAt()); token.expires.After(a.token.expires) {
			a.token = token
		}
		if ans.GetShouldCancel() {
			w.cancelLocked(a, ans.GetCancelReason(), asked.Add(spanOr(ans.GetCancelGraceLeft(), a.task.CancelGrace)))
		}
		return nil
	case ans.GetVerdict() == lessorv1.Verdict_VERDICT_REJECTED:
		return w.handleRejectedLocked(a, ans)
	case a.phase == reporting && ans.GetReason() == lessorv1.Reason_REASON_ALREADY_REPORTED:
		return ErrFinished // the worker's own outcome was processed before the Start or heartbeat
	}
	stop := &StopError{Err: ErrLeaseLost, Reason: ans.GetReason(), Detail: ans.GetDetail()}
	w.loseLocked(a, stop)
	return stop
}

// handleRejectedLocked logs that a Start or Heartbeat was REJECTED (K3), and returns that as an
// error. Unless the reason is INVALID_REQUEST, the lease is lost. With that reason nothing is known
// of the lease, because the coordinator checks the request before it (V1); but it was not renewed.
func (w *Worker) handleRejectedLocked(a *attempt, ans answer) error {
	w.deferLocked(func() {
		a.log().Error("the coordinator rejected a start or a heartbeat",
			"reason", ans.GetReason().String(), "detail", ans.GetDetail())
	})
	if ans.GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST {
		w.loseLocked(a, &StopError{Err: ErrLeaseLost, Reason: ans.GetReason(), Detail: ans.GetDetail()})
	}
	return &RejectedError{Reason: ans.GetReason(), Detail: ans.GetDetail()}
}

// renewLocked moves the end of the lease, if the answer has one.
func (w *Worker) renewLocked(a *attempt, asked time.Time, in time.Duration) {
	if in <= 0 {
		return
	}
	a.lease.renew(asked, in)
	if a.held() {
		a.setTimerLocked(time.Now())
	}
}

// startTimerLocked starts the timer for the end of the lease.
func (w *Worker) startTimerLocked(a *attempt, now time.Time) {
	a.timerAt = a.lease.end
	a.timer = time.AfterFunc(a.lease.left(now), func() { w.timerFired(a) })
}

// setTimerLocked sets the timer to the next heartbeat or the end of the lease, whichever is first.
func (a *attempt) setTimerLocked(now time.Time) {
	at := a.lease.end
	if !a.beatAt.IsZero() && a.beatAt.Before(at) {
		at = a.beatAt
	}
	if !at.Equal(a.timerAt) {
		a.timerAt = at
		a.timer.Reset(at.Sub(now))
	}
}

// timerFired runs when the timer fires. If the lease has expired without a renewal, the handler
// must stop, even if the coordinator still counts the lease as live. If a renewal arrived at the
// same moment, the end of the lease has already moved.
func (w *Worker) timerFired(a *attempt) {
	w.lock()
	defer w.unlock()
	if !a.held() {
		return
	}
	now := time.Now()
	if a.lease.left(now) <= 0 {
		w.expireLocked(a)
		return
	}
	if a.phase == executing && !now.Before(a.beatAt) {
		w.queueBeatLocked(a)
		w.scheduleBeatLocked(a, now)
	}
	a.timerAt = time.Time{} // the timer does not run
	a.setTimerLocked(now)
}

// cancelLocked is the first stage of a cancel: the context ends, the lease stays live, and the
// handler has until the end of the grace to return. What is told again can only move that end
// forward: it may have been counted from the arrival of a frame that was long under way.
func (w *Worker) cancelLocked(a *attempt, reason string, graceEnds time.Time) {
	if !a.held() {
		return
	}
	if a.cancelled != nil {
		if graceEnds.Before(a.cancelled.GraceEnds) {
			sooner := *a.cancelled // the handler has the old one, which must not change
			sooner.GraceEnds = graceEnds
			a.cancelled = &sooner
			a.graceTimer.Reset(time.Until(graceEnds))
		}
		return
	}
	a.cancelled = &StopError{
		Err:       ErrCancelled,
		Reason:    lessorv1.Reason_REASON_TASK_CANCELLED,
		Detail:    reason,
		GraceEnds: graceEnds,
	}
	a.cancelReason = reason
	a.lease.limits = nil // they do not apply any more (T7)
	w.stopLocked(a, a.cancelled)
	a.graceTimer = time.AfterFunc(time.Until(graceEnds), func() { w.cancelGraceExpired(a) })
}

// cancelGraceExpired is the second stage of a cancel: the coordinator has ended the lease, or is
// about to end it.
func (w *Worker) cancelGraceExpired(a *attempt) {
	w.lock()
	defer w.unlock()
	w.loseLocked(a, &StopError{
		Err:    ErrLeaseLost,
		Reason: lessorv1.Reason_REASON_CANCEL_TIMEOUT,
		Detail: "the handler did not return within the cancel grace",
	})
}

// stopLocked ends the handler's context. If the context has already ended, its first cause stays.
func (w *Worker) stopLocked(a *attempt, cause *StopError) {
	a.stop(cause)
	w.deferLocked(func() {
		a.log().Info("task stopped early", "cause", cause)
		if hook := w.cfg.Hooks.OnStop; hook != nil {
			hook(&a.task, cause)
		}
	})
}

// loseLocked ends an attempt whose handler has not returned: its outcome will be discarded (K2). An
// attempt that has already reported keeps waiting for its verdict, because only the verdict can say
// whether the report was in time.
func (w *Worker) loseLocked(a *attempt, cause *StopError) {
	w.lapseLocked(a, cause)
	w.dropLapsedLocked(a)
}

// expireLocked stops a handler whose lease has expired by this process's own clock. The attempt
// stays in the table, for a result: whether that comes too late is for the coordinator to say.
// There the lease may be live, and if it is not, an operator can adopt the result (V15).
func (w *Worker) expireLocked(a *attempt) { w.lapseLocked(a, a.lease.expiryError()) }

// lapseLocked ends the context and the heartbeats of an attempt: its handler must not change the
// outside world any more.
func (w *Worker) lapseLocked(a *attempt, cause *StopError) {
	if !a.held() {
		return
	}
	w.stopLocked(a, cause)
	a.phase, a.loss = lapsed, cause
	if a.lost != nil {
		close(a.lost)
	}
	a.renewals.next.answerWaiters(cause)
	if w.mu.unleased == nil {
		w.mu.unleased = make(map[*attempt]struct{})
	}
	w.mu.unleased[a] = struct{}{} // a held attempt has a goroutine, or waits for one
	a.stuckTimer = time.AfterFunc(stuckAfter, func() { w.markStuck(a) })
}

// dropLapsedLocked ends an attempt that has lapsed, and will not report.
func (w *Worker) dropLapsedLocked(a *attempt) {
	if a.phase == lapsed {
		w.endLocked(a)
	}
}

// endLocked removes an attempt from the table: it has its verdict, or will never get one.
func (w *Worker) endLocked(a *attempt) {
	a.phase = over
	a.stopTimersLocked()
	dropped := a.feedback.close()
	delete(w.mu.attempts, a.leaseID)
	if dropped > 0 {
		w.deferLocked(func() { a.log().Warn("output was dropped: more came than could be sent", "bytes", dropped) })
	}
	w.checkDrainedLocked()
}

// stopTimersLocked stops the timers that an attempt needs only until its handler has returned.
func (a *attempt) stopTimersLocked() {
	a.timer.Stop()
	if a.graceTimer != nil {
		a.graceTimer.Stop()
	}
}

// lostChanLocked returns the channel that is closed when the lease is lost before the handler has
// returned.
func (a *attempt) lostChanLocked() <-chan struct{} {
	if a.lost == nil {
		a.lost = make(chan struct{})
		if a.loss != nil {
			close(a.lost)
		}
	}
	return a.lost
}

func (w *Worker) markStuck(a *attempt) {
	w.lock()
	defer w.unlock()
	w.markStuckLocked(a)
}

// markStuckLocked counts a handler that still runs without its lease as stuck. Its slot is then no
// longer part of the declared capacity.
func (w *Worker) markStuckLocked(a *attempt) {
	if a.goroutineDone || a.stuck {
		return
	}
	a.stuck = true
	w.mu.stuck[a.task.Type]++
	w.wakeWriter()
	w.deferLocked(func() { a.log().Warn("handler still runs without its lease; its slot stays unused until it returns") })
}

// takeArtifacts returns the artifacts that the handler added, or an error if one of them cannot be
// sent.
func (a *attempt) takeArtifacts() ([]*lessorv1.Artifact, error) {
	a.w.lock()
	defer a.w.unlock()
	return a.artifacts, a.badArtifact
}

// queueFeedback lets the next frame of feedback carry the feedback of a.
func (a *attempt) queueFeedback() {
	w := a.w
	w.lock()
	defer w.unlock()
	if a.feedbackQueued || a.phase == over {
		return
	}
	a.feedbackQueued = true
	w.mu.outbox.feedback = append(w.mu.outbox.feedback, a)
	w.wakeWriter()
}
