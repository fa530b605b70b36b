package worker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// drainState is how the worker comes to its end (W10).
type drainState struct {
	// asked: no new work is taken.
	asked  bool
	reason string
	// until is when the contexts of handlers that still run end.
	until time.Time
	// timers lead to the end; the end stops them.
	timers []*time.Timer
	// result is what Run returns.
	result []error
}

// hasResult reports whether Run returns such an error already: each new stream is told of a drain that goes on.
func (d *drainState) hasResult(result error) bool {
	return slices.ContainsFunc(d.result, func(err error) bool { return err.Error() == result.Error() })
}

// addSaturating is first and then next, neither of them negative, or the longest span there is: a DrainTimeout may stand for ever.
func addSaturating(first, next time.Duration) time.Duration {
	if both := first + next; both >= 0 {
		return both
	}
	return math.MaxInt64
}

// beginDrain stops new work, lets what runs go on for patience, and sees to it that an end comes.
func (w *Worker) beginDrain(reason string, timeout time.Duration, result error) {
	w.requestDrain(reason, timeout, result)
	w.lock() // anew: that the worker drains is told before that it has ended
	defer w.unlock()
	w.checkDrainedLocked()
	w.wakeWriter()
}

// requestDrain is the first word of a drain. Asked again it only adds the result, and shortens the patience where that is
// shorter.
func (w *Worker) requestDrain(reason string, timeout time.Duration, result error) {
	w.lock()
	defer w.unlock()
	d := &w.mu.drain
	if result != nil && !d.hasResult(result) {
		d.result = append(d.result, result)
	}
	if until := time.Now().Add(timeout); !d.asked || until.Before(d.until) {
		d.until = until
		d.timers = append(d.timers,
			time.AfterFunc(timeout, w.stopHandlers),
			time.AfterFunc(addSaturating(timeout, w.cfg.StopTimeout), w.abandon))
	}
	if d.asked {
		return
	}
	d.asked, d.reason = true, reason
	w.moveLocked(drainAsked)
	w.deferLocked(func() { w.log.Info("draining", "reason", reason, "patience", timeout) })
}

// stopHandlers ends the contexts of all handlers: the patience is over.
func (w *Worker) stopHandlers() {
	w.lock()
	defer w.unlock()
	for _, a := range w.mu.attempts {
		if a.held() && a.ctx.Err() == nil {
			w.stopLocked(a, &StopError{Err: ErrDraining, Detail: w.mu.drain.reason})
		}
	}
}

// abandon gives up whatever is still there, so that Run can return.
func (w *Worker) abandon() {
	w.lock()
	defer w.unlock()
	if w.drained.Err() != nil {
		return
	}
	if n := w.mu.activeHandlers; n > 0 {
		w.addResultLocked(fmt.Errorf("%w: %d still running", ErrStuck, n))
	}
	w.abandonAllLocked(w.mu.drain.reason)
	w.endDrainLocked()
}

// abandonAllLocked ends all attempts. The coordinator frees their leases at the goodbye, or when they run out.
func (w *Worker) abandonAllLocked(why string) {
	for _, a := range w.mu.attempts {
		if a.phase == reporting {
			w.addResultLocked(undeliveredError(a, why))
			w.endLocked(a)
			continue
		}
		w.loseLocked(a, &StopError{Err: ErrLeaseLost, Detail: "the worker gave up the task: " + why})
	}
}

// addResultLocked adds to what Run returns.
func (w *Worker) addResultLocked(err error) {
	w.mu.drain.result = append(w.mu.drain.result, err)
	w.deferLocked(func() {
		w.log.Error("the drain left work unfinished", "error", err)
		w.callOnError(err)
	})
}

// checkDrainedLocked ends the worker once it is draining and nothing is left to do.
func (w *Worker) checkDrainedLocked() {
	if w.mu.drain.asked && len(w.mu.attempts) == 0 && w.mu.activeHandlers == 0 {
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

// abort ends a run that was refused for good: nothing can be renewed or reported any more, so nothing may go on.
func (w *Worker) abort(refused *RefusedError) error {
	w.abandonAll(refused.Error())
	w.beginDrain("the session was refused", 0, refused)
	<-w.drained.Done()
	return w.drainResult()
}

func (w *Worker) abandonAll(why string) {
	w.lock()
	defer w.unlock()
	w.abandonAllLocked(why)
}

// drainResult is what Run returns in the end.
func (w *Worker) drainResult() error {
	w.lock()
	defer w.unlock()
	return errors.Join(w.mu.drain.result...)
}
