package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// dispatch starts what the coordinator assigned, in a frame that it sent at ts by its own clock.
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

// admitLocked starts one assignment, or gives it back if it cannot start it. A lease that was
// dispatched before is not started again.
func (s *session) admitLocked(asg *lessorv1.Assignment, now time.Time, maxTransit time.Duration) {
	w, id := s.w, asg.GetLeaseId()
	if a, running := w.mu.attempts[id]; running {
		w.queueBeatLocked(a) // the heartbeat acknowledges the dispatch again
		return
	}
	if !w.mu.recent.add(id) {
		if w.mu.recent.refused(id) { // the coordinator has not noted the refusal
			w.refuseLocked(asg.GetTask().GetTaskId(), id)
		}
		return
	}
	a := w.newAttemptLocked(asg, now, maxTransit)
	if w.keyBusyLocked(&a.task) {
		a.stop(nil)
		w.refuseLocked(a.task.ID, id)
		return
	}
	w.mu.attempts[id] = a
	w.startTimerLocked(a, now)
	switch {
	case w.mu.drain.requested:
		w.reportLocked(a, a.release(0, "the worker is draining"))
	case w.capacityLocked().slots == 0:
		// register must declare at least one slot, and the coordinator has not yet received the
		// capacity frame with 0
		w.reportLocked(a, a.release(0, "the worker takes no new work"))
	case a.handler == nil:
		w.deferLocked(func() { a.log().Error("no handler for the task type", "type", a.task.Type) })
		w.reportLocked(a, a.release(unknownTypeDelay, "no handler for the type"))
	default:
		w.mu.activeHandlers++
		w.addFlightLocked(a)
		w.mu.ready = append(w.mu.ready, a)
		if a.task.Attempt > 1 {
			w.askFirstLocked(a)
		}
	}
}

// askFirstLocked queues a heartbeat whose answer the handler waits for, because the task had an
// attempt before: if the task kills its workers at once, perhaps nobody was heard of it yet. The
// coordinator counts a death as a loss only once it has heard of the attempt, and so must have
// before the handler can do anything (T5). A first attempt does not wait: so a task may run once
// unheard.
func (w *Worker) askFirstLocked(a *attempt) {
	a.firstAnswer = make(chan error, 1)
	a.renewals.next.waiters = append(a.renewals.next.waiters, waiter{answer: a.firstAnswer})
	w.queueBeatLocked(a)
}

// startGoroutineLocked starts a goroutine for the attempts that wait for one, unless another one is
// starting already.
func (w *Worker) startGoroutineLocked() {
	if len(w.mu.ready) > 0 && !w.mu.startingGoroutine {
		w.mu.startingGoroutine = true
		go w.serveAttempts()
	}
}

// serveAttempts serves attempts, one after the other, until none waits. A slow handler does not
// delay others: before it is called, another goroutine is starting if attempts wait. Handlers that
// return at once share a goroutine, and so a stack that has already grown.
func (w *Worker) serveAttempts() {
	for a := w.nextAttempt(true); a != nil; a = w.nextAttempt(false) {
		w.execute(a)
	}
}

// nextAttempt returns the next attempt that waits for a goroutine, with a slot if one is free; nil
// if none waits. first: it is the first call of a new goroutine.
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

// execute serves one attempt, from waiting for its slot to its outcome.
func (w *Worker) execute(a *attempt) {
	defer w.goroutineEnded(a) // deferred, because the handler may end its goroutine
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
		a.callOnStart(hook)
	}
	a.call()
}

// callOnStart calls the hook. If the hook ends the goroutine, that is the end of the handler, which
// was not called.
func (a *attempt) callOnStart(hook func(*Task)) {
	returned := false
	defer func() {
		if !returned {
			a.callOnEnd(0, &PanicError{})
		}
	}()
	hook(&a.task)
	returned = true
}

// callOnEnd calls the hook OnEnd, if it is set.
func (a *attempt) callOnEnd(took time.Duration, err error) {
	if hook := a.w.cfg.Hooks.OnEnd; hook != nil {
		hook(&a.task, took, err)
	}
}

// notStartedError returns why an attempt ends before its handler was called.
func (a *attempt) notStartedError(reason string) error {
	if cause := context.Cause(a.ctx); cause != nil {
		return cause
	}
	return Release(0, reason)
}

// confirmLease waits until the coordinator has said that the lease is live, if the handler must not
// begin before. It asks again after each heartbeat interval until an answer comes. It returns an
// error if the handler must not begin, also because the task was stopped before.
func (w *Worker) confirmLease(a *attempt) error {
	asked := a.firstAnswer // nil: nobody has asked yet
	for w.mustConfirm(a) {
		ctx, cancel := context.WithTimeout(a.ctx, a.interval)
		var err error
		if asked != nil {
			err = w.awaitAnswer(ctx, a, asked)
		} else {
			err = w.beatAndWait(ctx, a, nil)
		}
		cancel()
		asked = nil
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return context.Cause(a.ctx) // a cancel often comes right behind its dispatch, if both were held up
}

// mustConfirm reports whether a handler may not begin yet: no answer about the lease has come, and
// either the dispatch that granted it is no longer recent, or the task had an attempt before.
func (w *Worker) mustConfirm(a *attempt) bool {
	w.lock()
	defer w.unlock()
	return !a.lease.answered && (a.firstAnswer != nil || a.lease.stale(time.Now()))
}

// beginHandler makes the attempt one that executes, unless the lease is lost. Its Start, or its
// outcome, acknowledges the grant as well (W5).
func (w *Worker) beginHandler(a *attempt) bool {
	w.lock()
	defer w.unlock()
	now := time.Now()
	if a.lease.left(now) <= 0 {
		w.expireLocked(a)
	}
	if !a.held() {
		return false
	}
	a.phase, a.begun = executing, now
	w.mu.outbox.starts = append(w.mu.outbox.starts, a)
	w.wakeWriterSoonLocked(now)
	w.scheduleBeatLocked(a, now)
	a.setTimerLocked(now)
	return true
}

// call runs the handler. A deferred function takes the outcome, because runtime.Goexit runs only
// deferred functions.
func (a *attempt) call() {
	var output []byte
	var err error
	returned := false
	ctx, span := a.startSpan()
	begun := time.Now()
	defer func() {
		took := time.Since(begun)
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		} else if !returned {
			err = &PanicError{} // the handler ended its goroutine
		}
		endSpan(span, err)
		defer func() { a.w.finish(a, output, err) }() // deferred, because the hook may end the goroutine
		a.callOnEnd(took, err)
	}()
	output, err = a.handler(ctx, &a.task)
	returned = true
}

// finish makes the attempt's one report from what the handler returned, or discards it if the lease
// is lost (K2). If the lease has only expired by this process's own clock, a result is reported,
// but not a failure: most often the handler has only obeyed its context, and if the lease is live
// after all, that would count against the task (T5).
func (w *Worker) finish(a *attempt, output []byte, err error) {
	outcome, err := a.outcome(output, err)
	w.lock()
	defer w.unlock()
	w.removeFlightLocked(a)
	switch {
	case a.held():
	case a.phase == lapsed && outcome.item.GetComplete() != nil:
		w.deferLocked(func() {
			a.log().Info("the lease has expired by this worker's clock; the result is reported, for the coordinator to decide")
		})
	default:
		w.deferLocked(func() { a.logDiscarded(outcome, err) })
		return
	}
	if failure := outcome.item.GetFail().GetError(); failure != nil {
		w.deferLocked(func() { a.logFailure(failure, err) })
	}
	w.reportLocked(a, outcome)
}

// reportLocked ends the execution of a and queues the report of its outcome.
func (w *Worker) reportLocked(a *attempt, outcome *report) {
	a.phase = reporting
	a.stopTimersLocked()
	a.renewals.next.answerWaiters(ErrFinished)
	w.queueReportLocked(w.replaceIfTooLargeLocked(outcome))
}

// goroutineEnded runs when a goroutine has finished with an attempt. If the attempt is still held,
// then a hook, or a method of the handler's error, has ended the goroutine before there was an
// outcome: then the attempt fails.
func (w *Worker) goroutineEnded(a *attempt) {
	w.lock()
	defer w.unlock()
	if a.held() {
		failure := &lessorv1.TaskError{Category: UserCode, Message: (&PanicError{}).Error()}
		w.deferLocked(func() { a.logFailure(failure, &PanicError{}) })
		w.reportLocked(a, a.fail(failure))
	}
	w.dropLapsedLocked(a)
	a.stop(context.Canceled) // frees the context; an earlier cause stays
	a.goroutineDone = true
	delete(w.mu.unleased, a)
	if a.stuckTimer != nil {
		a.stuckTimer.Stop()
	}
	if a.stuck {
		countDown(w.mu.stuck, a.task.Type)
		w.wakeWriter()
	}
	w.mu.activeHandlers--
	w.mu.slots.release(a)
	w.removeFlightLocked(a)
	w.checkDrainedLocked()
}
