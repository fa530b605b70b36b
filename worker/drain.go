package worker

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// drainState is the state of the worker's drain (W10).
type drainState struct {
	// requested: a drain was requested, so the worker takes no new work.
	requested bool
	reason    string
	// stopHandlersAt is when the contexts of handlers that still run are ended.
	stopHandlersAt time.Time
	// timers start the later stages of the drain; they are stopped at its end.
	timers []*time.Timer
	// early has the timeouts of the calls of Drain before Run.
	early []time.Duration
	// result is what Run returns, joined.
	result []error
}

// addSaturating adds two durations that are not negative. If the sum overflows it returns the
// longest duration: a DrainTimeout may be the longest duration, to mean for ever.
func addSaturating(first, next time.Duration) time.Duration {
	if both := first + next; both >= 0 {
		return both
	}
	return math.MaxInt64
}

// Drain drains the worker, as the end of Run's context does, but with its own time for running
// handlers: after timeout, their contexts end with ErrDraining. If the worker drains already, Drain
// can only shorten that time. With 0, the contexts end at once; what handlers return within
// Config.StopTimeout is still reported, the worker says goodbye to the coordinator, and Run
// returns: that is what a second signal should do. If Run was not called yet, it will drain at
// once. Drain does not wait.
func (w *Worker) Drain(timeout time.Duration) {
	timeout = max(timeout, 0)
	if w.drainLater(timeout) {
		return
	}
	w.beginDrain(stoppingReason, timeout)
}

// stoppingReason is the reason of a drain that the program asks for.
const stoppingReason = "the worker is stopping"

// drainLater notes a drain for Run, and reports whether that is all that there is to do. After the
// end of the worker there is nothing to do.
func (w *Worker) drainLater(timeout time.Duration) bool {
	w.lock()
	defer w.unlock()
	if !w.mu.runCalled {
		w.mu.drain.early = append(w.mu.drain.early, timeout)
		return true
	}
	return w.drained.Err() != nil
}

// beginDrain starts a drain: the worker takes no new work, running handlers may go on for timeout,
// and then the worker ends.
func (w *Worker) beginDrain(reason string, timeout time.Duration) {
	w.requestDrain(reason, timeout)
	w.lock() // a second time, so that OnState reports the drain before checkDrainedLocked ends the worker
	defer w.unlock()
	w.checkDrainedLocked()
	w.wakeWriter()
}

// requestDrain marks the worker as draining and starts the timers of the drain. If the worker
// already drains, requestDrain only shortens the timeout, if the new one ends earlier.
func (w *Worker) requestDrain(reason string, timeout time.Duration) {
	w.lock()
	defer w.unlock()
	d := &w.mu.drain
	if until := time.Now().Add(timeout); !d.requested || until.Before(d.stopHandlersAt) {
		d.stopHandlersAt = until
		d.timers = append(d.timers,
			time.AfterFunc(timeout, w.stopHandlers),
			time.AfterFunc(addSaturating(timeout, w.cfg.StopTimeout), w.abandon))
	}
	if d.requested {
		return
	}
	d.requested, d.reason = true, reason
	w.moveLocked(drainAsked)
	w.refuseOperationsLocked()
	w.deferLocked(func() { w.log.Info("draining", "reason", reason, "patience", timeout) })
}

// drainDeadlineLocked returns when the worker will have ended. It is nil if that is so late that
// the coordinator would refuse it, as with the longest timeout, which means for ever.
func (w *Worker) drainDeadlineLocked() *timestamppb.Timestamp {
	ends := w.mu.drain.stopHandlersAt.Add(w.cfg.StopTimeout)
	if ends.Year() > maxYear {
		return nil
	}
	return timestamppb.New(ends)
}

// stopHandlers ends the contexts of all handlers and of the installer, because the drain timeout is
// over.
func (w *Worker) stopHandlers() {
	w.lock()
	defer w.unlock()
	for _, a := range w.mu.attempts {
		if a.held() && a.ctx.Err() == nil {
			w.stopLocked(a, &StopError{Err: ErrDraining, Detail: w.mu.drain.reason})
		}
	}
	w.stopOperationLocked(w.mu.drain.reason)
}

// abandon gives up everything that is still not finished, so that Run can return.
func (w *Worker) abandon() {
	w.lock()
	defer w.unlock()
	if w.drained.Err() != nil {
		return
	}
	if n := w.mu.activeHandlers; n > 0 {
		w.addResultLocked(fmt.Errorf("%w: %d still running", ErrStuck, n))
	}
	if op := w.mu.packages.running; op != nil {
		w.addResultLocked(fmt.Errorf("%w: the installer, to %s %s", ErrStuck, op.action(), op.pkg))
	}
	w.abandonAllLocked(w.mu.drain.reason)
	w.endDrainLocked()
}

// abandonAllLocked ends all attempts and the operations on packages. The coordinator frees their
// leases when it gets the goodbye, or when they expire.
func (w *Worker) abandonAllLocked(why string) {
	w.abandonPackagesLocked(why)
	for _, a := range w.mu.attempts {
		if a.phase == reporting {
			w.addResultLocked(undeliveredError(a, why))
			w.endLocked(a)
			continue
		}
		w.loseLocked(a, &StopError{Err: ErrLeaseLost, Detail: "the worker gave up the task: " + why})
	}
}

// addResultLocked adds err to what Run returns, logs it and passes it to Hooks.OnError.
func (w *Worker) addResultLocked(err error) {
	w.mu.drain.result = append(w.mu.drain.result, err)
	w.deferLocked(func() {
		w.log.Error("the drain left work unfinished", "error", err)
		w.callOnError(err)
	})
}

// checkDrainedLocked ends the worker if it is draining and nothing is left to do.
func (w *Worker) checkDrainedLocked() {
	if w.mu.drain.requested && len(w.mu.attempts) == 0 && w.mu.activeHandlers == 0 && w.packagesIdleLocked() {
		w.endDrainLocked()
	}
}

func (w *Worker) endDrainLocked() {
	for _, t := range w.mu.drain.timers {
		t.Stop()
	}
	w.setDrained()
	w.wakeWriter()
}

// abort ends a run that cannot go on, for example because the coordinator refused the worker for
// good: no lease can be renewed and nothing can be reported any more, so all handlers must stop.
func (w *Worker) abort(why error) error {
	w.abandonAll(why.Error())
	w.beginDrain(why.Error(), 0)
	<-w.drained.Done()
	return errors.Join(why, w.drainResult())
}

func (w *Worker) abandonAll(why string) {
	w.lock()
	defer w.unlock()
	w.abandonAllLocked(why)
}

// drainResult returns what Run returns after the drain.
func (w *Worker) drainResult() error {
	w.lock()
	defer w.unlock()
	return errors.Join(w.mu.drain.result...)
}
