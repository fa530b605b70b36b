package workercheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// finding is what is wrong with the worker, in words.
type finding string

func (f finding) Error() string { return string(f) }

// wrong returns a finding.
func wrong(format string, args ...any) error { return finding(fmt.Sprintf(format, args...)) }

// await waits until done returns true, which is called while the record does not change. After the patience of the check, or when the worker has ended,
// that it has not happened is a finding, which begins with what.
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
		return wrong("%s; the worker has ended (%s)", what, how)
	}
	return wrong("%s within %v", what, patience)
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

// committed waits until the worker was told that an outcome of the task is COMMITTED. It is a finding if one is REJECTED before.
func (r *rig) committed(task string) (*word, error) {
	return r.decided(task, func(*attempt) bool { return false })
}

// decided is committed, which gives up once enough returns true for an attempt. Then there is no word.
func (r *rig) decided(task string, enough func(*attempt) bool) (committed *word, err error) {
	refused := ""
	err = r.await("no outcome of "+task+" was COMMITTED", func() bool {
		for _, a := range r.rec.of(task) {
			for _, o := range a.outcomes() {
				switch {
				case o.lost:
				case o.verdict == lessorv1.Verdict_VERDICT_COMMITTED:
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
	if err == nil && committed == nil && refused != "" {
		err = finding(refused)
	}
	return committed, err
}

// executing waits until the worker executes the first attempt of a task: it was told that its start, or a heartbeat, is COMMITTED.
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

// worksOn checks that the worker takes a quick task, and completes it: nothing of what happened before holds it up.
func (r *rig) worksOn() error {
	task, err := r.submit(r.cfg.Quick)
	if err != nil {
		return err
	}
	if _, err := r.committed(task); err != nil {
		if f, ok := errors.AsType[finding](err); ok {
			return wrong("it takes no work afterwards: %s", f)
		}
		return err
	}
	return nil
}

// quiet checks that the worker says no more about an attempt after a time: no outcome that it has said before, and no heartbeat. It first waits a little.
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
