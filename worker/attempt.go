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
	// executing: the handler runs under a lease that is believed live.
	executing
	// reporting: the handler has returned; its outcome has no verdict yet. Heartbeats have ended (K4).
	reporting
	// over: there is a verdict, or the lease was lost. The handler may still be running, but nobody listens.
	over
)

// attempt is one lease in this worker, from its dispatch to its verdict or its loss.
type attempt struct {
	w       *Worker
	task    Task
	leaseID string
	// interval is how often the lease wants a heartbeat.
	interval time.Duration
	handler  Handler

	// ctx is the handler's; stop ends it with a cause.
	ctx      context.Context
	stop     context.CancelCauseFunc
	feedback feedback

	// Everything below is guarded by Worker.mu.

	phase phase
	lease lease
	// token is the newest that came.
	token taskToken
	// loss is why the authority was lost before the handler returned; nil while it was not. lost is closed with it, and made when
	// somebody waits for it.
	loss *StopError
	lost chan struct{}
	// cancelled: a cancel was asked, and this is why.
	cancelled    bool
	cancelReason string
	// next is what the next heartbeat carries; beatQueued: it waits in the outbox; bare: it leaves the progress out.
	next       renewal
	beatQueued bool
	bare       bool
	// feedbackQueued: feedback waits in the outbox.
	feedbackQueued bool
	artifacts      []*lessorv1.Artifact
	// hasGoroutine: a goroutine serves the attempt, or will; left: it is done with it. stuck: it outlived the lease by stuckAfter.
	hasGoroutine, goroutineDone, stuck bool

	// hasSlot: it has a slot. turn is closed when it gets one, if it had to wait.
	hasSlot   bool
	slotReady chan struct{}

	// timer fires at rings: when the next heartbeat falls due, at beatAt, or the lease runs out. There is one for both, as most
	// handlers return before either.
	timer           *time.Timer
	timerAt, beatAt time.Time
	// The grace of a cancel ends; the handler counts as stuck.
	graceTimer, stuckTimer *time.Timer
}

// newAttempt prepares an attempt whose assignment was received at the given time.
func (w *Worker) newAttempt(asg *lessorv1.Assignment, received time.Time, maxTransit time.Duration) *attempt {
	a := &attempt{
		w:        w,
		leaseID:  asg.GetLeaseId(),
		token:    tokenOf(asg.GetTaskToken(), asg.GetTokenExpiresAt()),
		interval: max(spanOr(asg.GetHeartbeatInterval(), defaultInterval), time.Millisecond),
	}
	a.task.fill(a, asg)
	a.handler = w.handlerFor(a.task.Type)
	a.ctx, a.stop = context.WithCancelCause(w.base)
	a.feedback.limit, a.feedback.owner = w.cfg.OutputBuffer, a
	ttl := spanOr(asg.GetHeartbeatTimeout(), defaultTTL)
	a.lease = grantedLease(received, spanOr(asg.GetExpiresIn(), ttl), ttl, maxTransit)
	return a
}

// held reports whether the attempt has, for all that is known here, authority to go on.
func (a *attempt) held() bool { return a.phase == waiting || a.phase == executing }

// checkHeld is nil while the attempt is held; else it says what became of it.
func (a *attempt) checkHeld() error {
	switch {
	case a.loss != nil:
		return a.loss
	case !a.held():
		return ErrFinished
	}
	return nil
}

// handleAnswerLocked takes in the answer to a Start or Heartbeat that was made at the given time. A nil error says that the
// lease was live.
func (w *Worker) handleAnswerLocked(a *attempt, asked time.Time, ans answer) error {
	if a.cancelReason == "" {
		a.cancelReason = ans.cancelReason
	}
	switch {
	case ans.verdict == lessorv1.Verdict_VERDICT_COMMITTED:
		w.renewLocked(a, asked, ans.expiresIn)
		if ans.token.expires.After(a.token.expires) {
			a.token = ans.token
		}
		if ans.shouldCancel {
			w.cancelLocked(a, ans.cancelReason, a.task.CancelGrace)
		}
		return nil
	case ans.verdict == lessorv1.Verdict_VERDICT_REJECTED:
		return w.handleRejectedLocked(a, ans)
	case ans.reason == lessorv1.Reason_REASON_ALREADY_REPORTED:
		return ErrFinished // our own report overtook the question
	}
	stop := &StopError{Err: ErrLeaseLost, Reason: ans.reason, Detail: ans.detail}
	w.loseLocked(a, stop)
	return stop
}

// handleRejectedLocked surfaces that a Start or Heartbeat was REJECTED (K3).
func (w *Worker) handleRejectedLocked(a *attempt, ans answer) error {
	w.deferLocked(func() {
		a.log().Error("the coordinator rejected a start or a heartbeat", "reason", ans.reason, "detail", ans.detail)
	})
	if ans.reason == lessorv1.Reason_REASON_INVALID_REQUEST {
		// About the lease it says nothing (V1 is decided first), but it has renewed nothing either.
		w.bareBeatLocked(a)
	} else {
		w.loseLocked(a, &StopError{Err: ErrLeaseLost, Reason: ans.reason, Detail: ans.detail})
	}
	return &RejectedError{Reason: ans.reason, Detail: ans.detail}
}

// renewLocked moves the lease's end, where the answer has one.
func (w *Worker) renewLocked(a *attempt, asked time.Time, in time.Duration) {
	if in <= 0 {
		return
	}
	a.lease.renew(asked, in)
	if a.held() {
		a.setTimerLocked(time.Now())
	}
}

// startTimerLocked begins to watch the lease.
func (w *Worker) startTimerLocked(a *attempt, now time.Time) {
	a.timerAt = a.lease.deadline
	a.timer = time.AfterFunc(a.lease.left(now), func() { w.timerFired(a) })
}

// setTimerLocked sets the timer to what comes first.
func (a *attempt) setTimerLocked(now time.Time) {
	at := a.lease.deadline
	if !a.beatAt.IsZero() && a.beatAt.Before(at) {
		at = a.beatAt
	}
	if !at.Equal(a.timerAt) {
		a.timerAt = at
		a.timer.Reset(at.Sub(now))
	}
}

// timerFired runs when the timer fires. Where the lease has run out without a renewal the attempt may not go on, whatever the
// coordinator thinks; a renewal that came at the same moment has moved the deadline.
func (w *Worker) timerFired(a *attempt) {
	w.lock()
	defer w.unlock()
	if !a.held() {
		return
	}
	now := time.Now()
	if a.lease.left(now) <= 0 {
		w.loseLocked(a, expiryError())
		return
	}
	if a.phase == executing && !now.Before(a.beatAt) {
		w.queueBeatLocked(a)
		w.scheduleBeatLocked(a, now)
	}
	a.timerAt = time.Time{} // it does not run
	a.setTimerLocked(now)
}

func expiryError() *StopError {
	return &StopError{Err: ErrLeaseLost, Detail: "no renewal arrived before the lease expired"}
}

// cancelLocked is the first stage of a cancel: the context ends, the lease lives on, and the handler has grace to return.
func (w *Worker) cancelLocked(a *attempt, reason string, grace time.Duration) {
	if !a.held() || a.cancelled {
		return
	}
	a.cancelled, a.cancelReason = true, reason
	w.stopLocked(a, &StopError{Err: ErrCancelled, Reason: lessorv1.Reason_REASON_TASK_CANCELLED, Detail: reason})
	a.graceTimer = time.AfterFunc(grace, func() { w.cancelGraceExpired(a) })
}

// cancelGraceExpired is the second stage: the coordinator has ended the lease, or is about to.
func (w *Worker) cancelGraceExpired(a *attempt) {
	w.lock()
	defer w.unlock()
	w.loseLocked(a, &StopError{
		Err:    ErrLeaseLost,
		Reason: lessorv1.Reason_REASON_CANCEL_TIMEOUT,
		Detail: "the handler did not return within the cancel grace",
	})
}

// stopLocked ends the handler's context; the first cause stays.
func (w *Worker) stopLocked(a *attempt, cause *StopError) {
	a.stop(cause)
	w.deferLocked(func() {
		a.log().Info("task stopped early", "cause", cause)
		if hook := w.cfg.Hooks.OnStop; hook != nil {
			hook(&a.task, cause)
		}
	})
}

// loseLocked ends an attempt whose handler has not returned: its outcome will be discarded (K2). An attempt that has
// reported already is left to its verdict, which alone can say whether the report was in time.
func (w *Worker) loseLocked(a *attempt, cause *StopError) {
	if !a.held() {
		return
	}
	w.stopLocked(a, cause)
	a.loss = cause
	if a.lost != nil {
		close(a.lost)
	}
	a.next.answerWaiters(cause)
	w.endLocked(a)
	if a.hasGoroutine && !a.goroutineDone {
		a.stuckTimer = time.AfterFunc(stuckAfter, func() { w.markStuck(a) })
	}
}

// endLocked takes an attempt out of the table: it has its verdict, or will never have one.
func (w *Worker) endLocked(a *attempt) {
	a.phase = over
	a.stopTimersLocked()
	dropped := a.feedback.close()
	delete(w.mu.attempts, a.leaseID)
	if dropped > 0 {
		w.deferLocked(func() { a.log().Warn("output was dropped because the stream is slow", "bytes", dropped) })
	}
	w.checkDrainedLocked()
}

// stopTimersLocked ends what keeps a held lease going.
func (a *attempt) stopTimersLocked() {
	a.timer.Stop()
	if a.graceTimer != nil {
		a.graceTimer.Stop()
	}
}

// lostChanLocked is closed when the authority is lost before the handler returned.
func (a *attempt) lostChanLocked() <-chan struct{} {
	if a.lost == nil {
		a.lost = make(chan struct{})
		if a.loss != nil {
			close(a.lost)
		}
	}
	return a.lost
}

// markStuck takes the slot of a handler that outlived its lease off the declared capacity.
func (w *Worker) markStuck(a *attempt) {
	w.lock()
	defer w.unlock()
	if a.goroutineDone {
		return
	}
	a.stuck = true
	if w.mu.stuck == nil {
		w.mu.stuck = make(map[string]int)
	}
	w.mu.stuck[a.task.Type]++
	w.wakeWriter()
	w.deferLocked(func() { a.log().Warn("handler still runs without its lease; its slot stays unused until it returns") })
}

// takeArtifacts returns what the handler added.
func (a *attempt) takeArtifacts() []*lessorv1.Artifact {
	a.w.lock()
	defer a.w.unlock()
	return a.artifacts
}

// queueFeedback queues what a has to tell.
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

// appendFeedback adds what a has to tell.
func appendFeedback(items []*lessorv1.FeedbackItem, a *attempt) []*lessorv1.FeedbackItem {
	for _, item := range a.feedback.take() {
		item.TaskId, item.LeaseId = a.task.ID, a.leaseID
		items = append(items, item)
	}
	return items
}
