package workercheck

import (
	"fmt"
	"sync/atomic"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// several is how many quick tasks are done in a row.
const several = 10

func work(r *rig) error {
	r.launch()
	var tasks []string
	for range several {
		task, err := r.submit(r.cfg.Quick)
		if err != nil {
			return err
		}
		tasks = append(tasks, task)
	}
	for _, task := range tasks {
		if _, err := r.committedFirst(task); err != nil {
			return err
		}
	}
	long, err := r.submit(r.cfg.Long)
	if err != nil {
		return err
	}
	a, err := r.executing(long)
	if err != nil {
		return err
	}
	w, err := r.committedFirst(long)
	if err != nil {
		return within(fmt.Sprintf("the long task, which must take %v or somewhat more", MinLong), err)
	}
	if took := w.at.Sub(a.granted); took < MinLong {
		return wrong("the long task took %v; the payload for it must be one that takes %v or more",
			took.Round(10*time.Millisecond), MinLong)
	}
	if err := r.quiet(a, r.rec.toldOf(w), "its outcome was COMMITTED"); err != nil {
		return err
	}
	return r.once()
}

func failure(r *rig) error {
	r.launch()
	task, err := r.submit(*r.cfg.Failing, func(s *lessorv1.TaskSpec) { s.RetryPolicy.MaxAttempts = 1 })
	if err != nil {
		return err
	}
	w, err := r.committed(task)
	switch {
	case err != nil:
		return err
	case w.kind != fail:
		return wrong("it reported %v, and no failure", w)
	case w.category == "" || w.category == "UNSPECIFIED":
		return wrong("its failure has no category, so the coordinator cannot know whether another attempt may help")
	}
	if err := r.quiet(w.attempt, r.rec.toldOf(w), "its outcome was COMMITTED"); err != nil {
		return err
	}
	if err := r.once(); err != nil {
		return err
	}
	return r.worksOn()
}

func grantLost(r *rig) error {
	var lost atomic.Bool
	r.set(faults{grant: func() fate {
		if lost.CompareAndSwap(false, true) {
			return lose
		}
		return pass
	}})
	r.launch()
	task, err := r.submit(r.cfg.Quick, lasting)
	if err != nil {
		return err
	}
	_, err = r.committedFirst(task)
	return within("after the answer with its first task was lost", err)
}

func verdictLost(r *rig) error { return r.repeats(lose) }

func itemError(r *rig) error { return r.repeats(mask) }

// first returns what gives the first outcome a fate, and lets all else pass.
func first(is fate) func(*word) fate {
	var seen atomic.Bool
	return func(w *word) fate {
		if w.kind.outcome() && seen.CompareAndSwap(false, true) {
			return is
		}
		return pass
	}
}

// repeats checks that the worker repeats its report, unchanged, after the verdict had the fate, and
// is quiet then.
func (r *rig) repeats(after fate) error {
	r.set(faults{tell: first(after)})
	r.launch()
	task, err := r.submit(r.cfg.Quick, lasting)
	if err != nil {
		return err
	}
	w, err := r.committedFirst(task)
	if changed := r.unchanged(task); changed != nil {
		return changed
	}
	if err != nil {
		return within("after a report that got no answer", err)
	}
	if err := r.quiet(w.attempt, time.Now(), "its outcome was COMMITTED"); err != nil {
		return err
	}
	return r.worksOn()
}

// unheardFor is how long nobody hears reports.
const unheardFor = 1500 * time.Millisecond

func noVerdict(r *rig) error {
	var began atomic.Pointer[time.Time]
	r.set(faults{hear: func(w *word) fate {
		if !w.kind.outcome() {
			return pass
		}
		began.CompareAndSwap(nil, &w.at)
		if w.at.Sub(*began.Load()) < unheardFor {
			return refuse
		}
		return pass
	}})
	r.launch()
	task, err := r.submit(r.cfg.Quick, lasting)
	if err != nil {
		return err
	}
	w, err := r.committedFirst(task)
	if err != nil {
		return err
	}
	if err := r.unchanged(task); err != nil {
		return err
	}
	var tries int
	r.rec.look(func() { tries = len(w.attempt.outcomes()) - 1 })
	if most := int(unheardFor.Seconds() * maxTries); tries > most {
		return wrong("it tried %d times within %v; it must wait between tries", tries, unheardFor)
	}
	return r.worksOn()
}

func rejected(r *rig) error {
	r.set(faults{hear: first(spoil)})
	r.launch()
	task, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	var a *attempt
	if err := r.await("it reported no outcome that could be REJECTED", func() bool {
		for _, of := range r.rec.of(task) {
			if len(of.outcomes()) > 0 && of.outcomes()[0].verdict == lessorv1.Verdict_VERDICT_REJECTED {
				a = of
			}
		}
		return a != nil
	}); err != nil {
		return err
	}
	return r.notAgain(a, "was REJECTED")
}
