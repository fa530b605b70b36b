package workercheck

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func cancel(r *rig) error {
	a, err := r.begin(r.cfg.Long)
	if err != nil {
		return err
	}
	if err := r.cancelTask(a.task); err != nil {
		return err
	}
	return r.stops(a)
}

// stops checks that the worker stops the work that was cancelled.
func (r *rig) stops(a *attempt) error {
	w, err := r.decided(a.task, anyOutcome, func(a *attempt) bool { return !a.lost.IsZero() })
	switch {
	case err != nil:
		return err
	case w == nil:
		return wrong("it did not stop within the cancel grace of %v", cancelGrace)
	case w.kind == fail && w.category != "CANCELLED":
		return wrong("it reported %v; the category of what a cancel has stopped is CANCELLED", w)
	case w.kind == complete && w.at.Sub(a.granted) < MinLong:
		return wrong("it reported %v after %v, although the task takes %v or more: what a cancel has cut off is a failure of category CANCELLED",
			w, w.at.Sub(a.granted).Round(10*time.Millisecond), MinLong)
	}
	return r.worksOn()
}

// cancelUnheard is for workers that wait for the coordinator to say that the grace is over.
func cancelUnheard(r *rig) error {
	r.set(faults{parts: func(a *attempt) bool { return !a.stopping.IsZero() }})
	a, err := r.begin(r.cfg.Long, lasting)
	if err != nil {
		return err
	}
	over := time.Now().Add(cancelGrace)
	if err := r.cancelTask(a.task); err != nil {
		return err
	}
	if err := r.await("it was not told to stop: it did not ask about its lease", func() bool { return !a.stopping.IsZero() }); err != nil {
		return err
	}
	if err := r.pause(time.Until(over) + crossing); err != nil {
		return err
	}
	var stopped bool
	r.rec.look(func() { stopped = len(a.outcomes()) > 0 })
	if !stopped {
		return wrong("it goes on with %v after the cancel grace of %v, in which it heard no more: it must count that by itself", a, cancelGrace)
	}
	r.down() // what was not carried is lost with the connections
	r.set(faults{})
	r.up()
	if err := r.await("it did not repeat its report, which got no answer", func() bool { return !a.lost.IsZero() }); err != nil {
		return err
	}
	if err := r.quiet(a, r.rec.gone(a), "it was told that the grace was over"); err != nil {
		return err
	}
	return r.worksAfter(fmt.Sprintf("it was told that the grace for %v was over before its report came; it must take other work", a))
}

func cancelEarly(r *rig) error {
	var early atomic.Pointer[word]
	cancelled := make(chan error, 1)
	r.set(faults{hear: func(w *word) fate {
		if w.kind == start && early.CompareAndSwap(nil, w) {
			cancelled <- r.cancelTask(w.attempt.task)
		}
		return pass
	}})
	r.launch()
	if _, err := r.submit(r.cfg.Long); err != nil {
		return err
	}
	var first *word
	if err := r.await("it reported no start", func() bool {
		first = early.Load()
		return first != nil && (first.content == begun || !first.attempt.lost.IsZero())
	}); err != nil {
		return err
	}
	if err := <-cancelled; err != nil {
		return err
	}
	a := first.attempt
	if first.content == begun {
		return r.stops(a)
	}
	if err := r.quiet(a, r.rec.gone(a), "it was told not to begin"); err != nil {
		return err
	}
	return r.worksAfter(fmt.Sprintf("it was told not to begin %v; it must take other work", a))
}

func leaseLost(r *rig) error {
	a, err := r.begin(r.cfg.Long)
	if err != nil {
		return err
	}
	if err := r.remove(a.task); err != nil {
		return err
	}
	if err := r.await("it did not ask about its lease, which was lost", func() bool { return !a.lost.IsZero() }); err != nil {
		return err
	}
	if err := r.pause(MinLong); err != nil {
		return err
	}
	if err := r.quiet(a, r.rec.gone(a), "it was told that its lease is lost"); err != nil {
		return err
	}
	return r.worksAfter(fmt.Sprintf("it was told that its lease on %v is lost; it must stop that work, and take other", a))
}

// waited is for workers that count a lease from before the request that waited for it.
func waited(r *rig) error {
	r.launch()
	if err := r.await("it did not ask for work", func() bool { return len(r.rec.asked) > 0 }); err != nil {
		return err
	}
	if err := r.pause(ttl + beat); err != nil {
		return err
	}
	task, err := r.submit(r.cfg.Long)
	if err != nil {
		return err
	}
	if _, err := r.committedFirst(task); err != nil {
		return within(fmt.Sprintf("after it had waited for work for longer than a lease of %v lives, which begins with the grant", ttl), err)
	}
	return nil
}

func resultLate(r *rig) error {
	var removed atomic.Pointer[attempt]
	var failed error
	r.set(faults{hear: func(w *word) fate {
		if w.kind.outcome() && removed.CompareAndSwap(nil, w.attempt) {
			failed = r.remove(w.attempt.task)
		}
		return pass
	}})
	r.launch()
	if _, err := r.submit(r.cfg.Quick); err != nil {
		return err
	}
	var a *attempt
	if err := r.await("it reported no outcome", func() bool {
		if a = removed.Load(); a == nil {
			return false
		}
		all := a.outcomes()
		return len(all) > 0 && all[0].verdict == lessorv1.Verdict_VERDICT_CANCELLED
	}); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return r.notAgain(a, "was CANCELLED")
}

func frozen(r *rig) error {
	a, err := r.begin(r.cfg.Long)
	if err != nil {
		return err
	}
	r.worker.signal(syscall.SIGSTOP)
	err = r.pause(ttl + time.Second)
	r.worker.signal(syscall.SIGCONT)
	if err != nil {
		return err
	}
	// the next attempt may be there before what it stops has ended, and it may give that one back
	counts := func(o *word) bool { return o.attempt == a || o.kind != release }
	w, err := r.decided(a.task, counts, never)
	if err != nil {
		return err
	}
	if w.attempt == a {
		return wrong("its lease did not expire while its process group was stopped: something outside of that renewed it")
	}
	if w.kind != complete {
		return wrong("it reported %v, and no success", w)
	}
	var again bool
	r.rec.look(func() { // what had no verdict may be said again
		all := a.outcomes()
		again = len(all) > 1 && all[0].verdict != lessorv1.Verdict_VERDICT_UNSPECIFIED && all[1].at.After(all[0].told)
	})
	if again {
		return wrong("it repeated its report of %v, whose lease was lost", a)
	}
	return nil
}
