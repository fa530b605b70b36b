package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// dispatch takes in what the coordinator hands out, in a frame that it sent at ts by its own clock.
func (s *session) dispatch(assignments []*lessorv1.Assignment, ts *timestamppb.Timestamp) {
	now := time.Now()
	s.w.lock()
	defer s.w.unlock()
	maxTransit := s.transit.longest(now, ts)
	for _, asg := range assignments {
		s.admitLocked(asg, now, maxTransit)
	}
	s.w.startGoroutineLocked()
}

// admitLocked starts one assignment, or gives it back where it cannot. A lease that came before starts nothing again.
func (s *session) admitLocked(asg *lessorv1.Assignment, now time.Time, maxTransit time.Duration) {
	w, id := s.w, asg.GetLeaseId()
	if a, running := w.mu.attempts[id]; running {
		w.queueBeatLocked(a) // acknowledges it once more
		return
	}
	if !w.mu.recent.add(id) {
		return
	}
	a := w.newAttempt(asg, now, maxTransit)
	if w.keyBusyLocked(&a.task) {
		a.stop(nil)
		s.replyLocked(concurrencyViolation(&a.task, id))
		return
	}
	w.mu.attempts[id] = a
	w.startTimerLocked(a, now)
	switch {
	case w.mu.drain.asked:
		w.reportLocked(a, a.release(0, "the worker is draining"))
	case w.capacityLocked().slots == 0: // that came before the coordinator heard of it: register has to declare one
		w.reportLocked(a, a.release(0, "the worker takes no new work"))
	case a.handler == nil:
		w.deferLocked(func() { a.log().Error("no handler for the task type", "type", a.task.Type) })
		w.reportLocked(a, a.release(unknownTypeDelay, "no handler for the type"))
	default:
		a.hasGoroutine = true
		w.mu.activeHandlers++
		w.addFlightLocked(&a.task)
		w.mu.ready = append(w.mu.ready, a)
	}
}

// startGoroutineLocked sees to it that a goroutine is on its way while attempts wait for one.
func (w *Worker) startGoroutineLocked() {
	if len(w.mu.ready) > 0 && !w.mu.startingGoroutine {
		w.mu.startingGoroutine = true
		go w.serveAttempts()
	}
}

// serveAttempts serves attempts, one after the other, until none waits. A handler that takes its time holds up no other: before it is
// called another goroutine is on its way. Handlers that return at once share a goroutine, and a stack that has grown.
func (w *Worker) serveAttempts() {
	for a := w.nextAttempt(true); a != nil; a = w.nextAttempt(false) {
		w.execute(a)
	}
}

// nextAttempt returns the next attempt that waits for a goroutine, with a slot if one is free; nil where none waits. The first time
// it says that the recruit has arrived.
func (w *Worker) nextAttempt(first bool) *attempt {
	w.lock()
	defer w.unlock()
	if first {
		w.mu.startingGoroutine = false
	}
	if len(w.mu.ready) == 0 {
		w.mu.ready = nil
		return nil
	}
	a := w.mu.ready[0]
	w.mu.ready[0] = nil
	w.mu.ready = w.mu.ready[1:]
	w.startGoroutineLocked()
	w.mu.slots.acquire(a)
	return a
}

// execute serves one attempt, from the slot to the outcome.
func (w *Worker) execute(a *attempt) {
	defer w.goroutineEnded(a) // also where the handler ends its goroutine
	if !w.awaitSlot(a) {
		w.finish(a, nil, a.notStartedError("no free slot"))
		return
	}
	if err := w.confirmLease(a); err != nil {
		w.finish(a, nil, a.notStartedError(err.Error()))
		return
	}
	if !w.beginHandler(a) {
		return
	}
	if hook := w.cfg.Hooks.OnStart; hook != nil {
		hook(&a.task)
	}
	a.call()
}

// notStartedError is why an attempt ends without its handler.
func (a *attempt) notStartedError(reason string) error {
	if cause := context.Cause(a.ctx); cause != nil {
		return cause
	}
	return Release(0, reason)
}

// confirmLease asks whether the lease lives, where only an old dispatch says so, and again at each interval until an answer comes.
func (w *Worker) confirmLease(a *attempt) error {
	for w.mustConfirm(a) {
		ctx, cancel := context.WithTimeout(a.ctx, a.interval)
		err := w.beatAndWait(ctx, a, nil)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return nil
}

func (w *Worker) mustConfirm(a *attempt) bool {
	w.lock()
	defer w.unlock()
	return a.lease.mustConfirm(time.Now())
}

// beginHandler reports the start, unless the lease is gone. The Start acknowledges the grant as well (W5).
func (w *Worker) beginHandler(a *attempt) bool {
	w.lock()
	defer w.unlock()
	now := time.Now()
	if a.lease.left(now) <= 0 {
		w.loseLocked(a, expiryError())
	}
	if !a.held() {
		return false
	}
	a.phase = executing
	w.queueReportLocked(a.start(now))
	w.scheduleBeatLocked(a, now)
	a.setTimerLocked(now)
	return true
}

// call runs the handler. The outcome is taken in a deferred function, because runtime.Goexit runs nothing else.
func (a *attempt) call() {
	var output []byte
	var err error
	returned := false
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		} else if !returned {
			err = &PanicError{} // the handler ended its goroutine
		}
		a.w.finish(a, output, err)
	}()
	output, err = a.handler(a.ctx, &a.task)
	returned = true
}

// finish turns what the handler returned into the attempt's one report, or discards it where the lease is lost (K2).
func (w *Worker) finish(a *attempt, output []byte, err error) {
	outcome, err := a.outcome(output, err)
	w.lock()
	defer w.unlock()
	if a.lease.left(time.Now()) <= 0 {
		w.loseLocked(a, expiryError())
	}
	if !a.held() {
		w.deferLocked(func() { a.log().Info("outcome discarded: the lease was lost") })
		return
	}
	if failure := outcome.item.GetFail().GetError(); failure != nil {
		w.deferLocked(func() { a.logFailure(failure, err) })
	}
	w.reportLocked(a, outcome)
}

// reportLocked ends the execution of a and queues its outcome.
func (w *Worker) reportLocked(a *attempt, outcome *report) {
	a.phase = reporting
	a.stopTimersLocked()
	a.next.answerWaiters(ErrFinished)
	w.queueReportLocked(w.replaceIfTooLarge(outcome))
}

// goroutineEnded is the end of what a goroutine does for an attempt. One that is still held has no outcome, and nobody is left to make one: a
// hook or a method of the handler's error has ended the goroutine.
func (w *Worker) goroutineEnded(a *attempt) {
	w.lock()
	defer w.unlock()
	if a.held() {
		failure := &lessorv1.TaskError{Category: UserCode, Message: (&PanicError{}).Error()}
		w.deferLocked(func() { a.logFailure(failure, &PanicError{}) })
		w.reportLocked(a, a.fail(failure))
	}
	a.stop(context.Canceled) // frees the context; a cause that came first stays
	a.goroutineDone = true
	if a.stuckTimer != nil {
		a.stuckTimer.Stop()
	}
	if a.stuck {
		if w.mu.stuck[a.task.Type]--; w.mu.stuck[a.task.Type] == 0 {
			delete(w.mu.stuck, a.task.Type)
		}
		w.wakeWriter()
	}
	w.mu.activeHandlers--
	w.mu.slots.release(a)
	w.removeFlightLocked(&a.task)
	w.checkDrainedLocked()
}
