package workercheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// finding is what is wrong with the worker, in words.
type finding string

func (f finding) Error() string { return string(f) }

// wrong returns a finding.
func wrong(format string, args ...any) error { return finding(fmt.Sprintf(format, args...)) }

// within returns err; if it is a finding, it begins with what.
func within(what string, err error) error {
	if f, ok := errors.AsType[finding](err); ok {
		return wrong("%s: %s", what, f)
	}
	return err
}

// await waits until done returns true, which is called while the record does not change. After the
// patience of the check, or when the worker has ended, that it has not happened is a finding, which
// begins with what.
func (r *rig) await(what string, done func() bool) error {
	return r.awaitFor(r.cfg.patience(), what, done)
}

func (r *rig) awaitFor(patience time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(r.ctx, patience)
	defer cancel()
	go func() { // no more comes from a worker that has ended
		select {
		case <-r.worker.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	if r.rec.until(ctx.Done(), done) {
		return nil
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if how := r.worker.ended(); how != "" {
		return wrong("%s; the worker has ended (%s)%s", what, how, r.whyNoTask())
	}
	return wrong("%s within %v%s", what, patience, r.whyNoTask())
}

// whyNoTask says why a worker has had no task at all; empty: it had one.
func (r *rig) whyNoTask() (why string) {
	r.rec.look(func() {
		switch {
		case len(r.rec.attempts) > 0:
			return
		case len(r.rec.asked) == 0:
			why = "; it has not asked for work"
		case len(r.rec.queues) > 0 && !slices.Contains(r.rec.queues, r.cfg.Queue):
			why = fmt.Sprintf("; it asks for work from %s, and the tasks are in the queue %s", strings.Join(r.rec.queues, ", "), r.cfg.Queue)
		default:
			why = fmt.Sprintf("; it asks for work, but has got none: does it take tasks of the type %s?", r.cfg.Type)
		}
		if r.rec.refusal != "" {
			why += "; the last error that it got: " + r.rec.refusal
		}
	})
	return why
}

// taken waits until the worker was told of the first attempt of a task.
func (r *rig) taken(task string) (a *attempt, err error) {
	err = r.await("it did not take "+task, func() bool {
		if all := r.rec.of(task); len(all) > 0 {
			a = all[0]
		}
		return a != nil
	})
	return a, err
}

// pause waits, unless the check is stopped.
func (r *rig) pause(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// committed waits until the worker was told that an outcome of the task is COMMITTED. It is a
// finding if one is REJECTED before.
func (r *rig) committed(task string) (*word, error) {
	return r.decided(task, anyOutcome, never)
}

func anyOutcome(*word) bool { return true }

func never(*attempt) bool { return false }

// decided is committed for an outcome that counts. It gives up once enough returns true for an
// attempt. Then there is no word.
func (r *rig) decided(
	task string, counts func(*word) bool, enough func(*attempt) bool,
) (committed *word, err error) {
	refused := ""
	err = r.await("no outcome of "+task+" was COMMITTED", func() bool {
		for _, a := range r.rec.of(task) {
			for _, o := range a.outcomes() {
				switch {
				case o.lost:
				case o.verdict == lessorv1.Verdict_VERDICT_COMMITTED && counts(o):
					committed = o
					return true
				case o.verdict == lessorv1.Verdict_VERDICT_REJECTED:
					refused = fmt.Sprintf("its report, %v, was REJECTED (%s)", o, o.reason)
				}
			}
			if enough(a) {
				return true
			}
		}
		return refused != ""
	})
	if f, ok := errors.AsType[finding](err); ok {
		n := 0
		r.rec.look(func() { n = len(r.rec.of(task)) })
		if n > 1 {
			err = wrong("%s in %d attempts: each ended without one, and it took the task again", f, n)
		}
	}
	if err == nil && committed == nil && refused != "" {
		err = finding(refused)
	}
	return committed, err
}

// executing waits until the worker executes the first attempt of a task: it was told that its
// start, or a heartbeat, is COMMITTED.
func (r *rig) executing(task string) (a *attempt, err error) {
	err = r.await("it did not begin "+task, func() bool {
		all := r.rec.of(task)
		if len(all) > 0 && slices.ContainsFunc(all[0].words, func(w *word) bool { return w.verdict == lessorv1.Verdict_VERDICT_COMMITTED }) {
			a = all[0]
		}
		return a != nil
	})
	return a, err
}

// begin starts the worker and submits a task, and waits until the worker executes it.
func (r *rig) begin(payload string, options ...option) (*attempt, error) {
	r.launch()
	task, err := r.submit(payload, options...)
	if err != nil {
		return nil, err
	}
	return r.executing(task)
}

// worksOn checks that the worker takes a quick task, and completes it: nothing of what happened
// before holds it up.
func (r *rig) worksOn() error { return r.worksAfter("it takes no work afterwards") }

// worksAfter is worksOn after the worker was told something. If it takes no task, the finding
// begins with that.
func (r *rig) worksAfter(told string) error {
	task, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	if _, err := r.taken(task); err != nil {
		return within(told, err)
	}
	if _, err := r.committed(task); err != nil {
		return within("it takes work afterwards, and does not do it", err)
	}
	return nil
}

// quiet checks that the worker says no more about an attempt after a time: no outcome that it has
// said before, and no heartbeat. It first waits a little.
func (r *rig) quiet(a *attempt, since time.Time, why string) error {
	if err := r.pause(settle); err != nil {
		return err
	}
	var late *word
	r.rec.look(func() {
		for _, w := range a.words {
			if w.at.After(since.Add(crossing)) && (w.kind.outcome() || w.kind == heartbeat) {
				late = w
				return
			}
		}
	})
	if late != nil {
		return wrong("it sent %v %s after %s", late, late.at.Sub(since).Round(10*time.Millisecond), why)
	}
	return nil
}

// exits waits for the end of the worker after SIGTERM.
func (r *rig) exits() error {
	select {
	case <-r.worker.exited:
	case <-time.After(r.cfg.patience()):
		return wrong("it still runs %v after SIGTERM", r.cfg.patience())
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	return nil
}

// committedFirst is committed for a task that must be COMPLETED in its first attempt.
func (r *rig) committedFirst(task string) (*word, error) {
	w, err := r.decided(task, anyOutcome, func(a *attempt) bool { return a.number > 1 })
	switch {
	case err != nil:
		return nil, err
	case w == nil || w.attempt.number > 1:
		return nil, wrong("it lost its lease on %s: there is a second attempt", task)
	case w.kind != complete:
		return nil, wrong("it reported %v, and no success", w)
	}
	return w, nil
}

// once checks that no outcome was said twice without need.
func (r *rig) once() (err error) {
	r.rec.look(func() {
		for _, a := range r.rec.attempts {
			if n := len(a.outcomes()); a.repeatedInVain() {
				err = wrong("it sent %d outcomes of %v; one was heard and answered", n, a)
			}
		}
	})
	return err
}

// unchanged checks that all outcomes that the worker said of an attempt of a task are the same.
func (r *rig) unchanged(task string) (err error) {
	r.rec.look(func() {
		for _, a := range r.rec.of(task) {
			all := a.outcomes()
			for _, o := range all {
				if o.kind != all[0].kind || o.content != all[0].content {
					err = wrong("it repeated its report of %v with other content", a)
				}
			}
		}
	})
	return err
}

// notAgain checks that the first outcome of an attempt, which was refused, is not repeated, and
// that the worker takes other work.
func (r *rig) notAgain(a *attempt, was string) error {
	if err := r.pause(settle); err != nil {
		return err
	}
	again := false
	r.rec.look(func() {
		all := a.outcomes()
		again = slices.ContainsFunc(all[1:],
			func(w *word) bool { return w.kind == all[0].kind && w.content == all[0].content })
	})
	if again {
		return wrong("it repeated its report of %v, which %s", a, was)
	}
	return r.worksOn()
}

// untouched checks that a task still waits.
func (r *rig) untouched(task, since string) error {
	t, err := r.state(task)
	if err != nil {
		return err
	}
	if t.GetState() != lessorv1.TaskState_TASK_STATE_READY {
		return wrong("it took a task after %s; the task is %s",
			since, strings.TrimPrefix(t.GetState().String(), "TASK_STATE_"))
	}
	return nil
}
