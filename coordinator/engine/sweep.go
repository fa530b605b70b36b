package engine

import (
	"context"
	"errors"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Bounds of a sweep.
var (
	sweepStep = 200    // most tasks on which one step decides, before other operations have their turn
	sweepCall = 10_000 // most tasks that one call reads
)

// Sweep is a bulk command on the tasks of a space.
type Sweep struct {
	Space Space
	Run   string // only the tasks of this run; empty: of all, and of none
	Key   string // only the task with this idempotency key, for which Choose alone decides; empty: any
	// Matches reports whether the sweep looks at a task; nil: it looks at all. It is called outside
	// of the loop, with a version that may be old, so it may look only at what no version changes.
	Matches func(*lease.Task) bool
	// After is the sequence after which the sweep begins. Until is the last sequence that it looks
	// at; 0: that of the newest task at present.
	After, Until uint64
	// Choose returns the command for a task. A nil command passes over the task. skip says that the
	// task was selected but the command does not apply to it: it is then counted in Swept.Skipped.
	Choose func(*lease.Task) (c lease.Command, skip bool)
}

// Swept is the result of a call of Sweep.
type Swept struct {
	Changed, Skipped uint64
	// After and Until are the values for the Sweep that continues this one; More is false when no
	// tasks are left.
	After, Until uint64
	More         bool
}

// Sweep runs a bulk command on the tasks of a space, oldest first, in bounded steps. Each step is
// durable before the next begins. One call makes a bounded number of steps. If ctx ends, the steps
// that were made stay.
//
// A refusal that leaves the next task as it is also ends the call: ErrTaskLimit, ErrOverloaded or
// ErrStopped. It is an error only if nothing was changed before: a caller that repeated the call
// would not learn what this one did.
func (e *Engine) Sweep(ctx context.Context, s Sweep) (done Swept, err error) {
	number, ok := e.dir.lookup(s.Space)
	if !ok {
		return Swept{}, nil
	}
	done = Swept{After: s.After, Until: s.Until, More: true}
	if s.Key != "" {
		done.More = false
		t, err := e.TaskByKey(ctx, s.Space.Tenant, number, s.Key)
		if err == nil && t != nil {
			err = e.sweepTasks(ctx, s, []lease.TaskID{t.ID}, &done)
		}
		return done, err
	}
	if s.Until == 0 {
		done.Until, err = askAs(ctx, e, s.Space.Tenant, op{settles: true},
			func() (uint64, error) { return e.spaces.numbered(number).nextSeq - 1, nil })
	}
	for left := sweepCall; err == nil && done.More && left > 0; {
		err = e.sweepStep(ctx, s, number, &left, &done)
	}
	if done.Changed > 0 && refusedStep(err) {
		err = nil
	}
	return done, err
}

// refusedStep reports whether err refuses a step, or the rest of one, that can be made later.
func refusedStep(err error) bool {
	return errors.Is(err, ErrTaskLimit) || errors.Is(err, ErrOverloaded) || errors.Is(err, ErrStopped)
}

// sweepStep applies the sweep to the next sweepStep tasks that match, among the next tasks, of
// which it reads no more than left. It reads from the store, but decides on their newest versions.
func (e *Engine) sweepStep(ctx context.Context, s Sweep, number uint32, left *int, done *Swept) error {
	var ids []lease.TaskID
	done.More = false
	err := e.st.View(func(r store.Reader) error {
		return records.Tasks(store.Polite(r), number, s.Run, done.After, func(t *lease.Task) bool {
			if t.ID.Seq > done.Until {
				return false
			}
			if *left == 0 || len(ids) == sweepStep {
				done.More = true
				return false
			}
			*left--
			done.After = t.ID.Seq
			if (s.Run == "" || t.Spec.RunID == s.Run) && (s.Matches == nil || s.Matches(t)) {
				ids = append(ids, t.ID)
			}
			return true
		})
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	return e.sweepTasks(ctx, s, ids, done)
}

// sweepTasks applies the sweep to tasks, in one operation.
func (e *Engine) sweepTasks(ctx context.Context, s Sweep, ids []lease.TaskID, done *Swept) error {
	counts, err := askAs(ctx, e, s.Space.Tenant, op{settles: true}, func() (counts Swept, err error) {
		for _, id := range ids {
			if err = e.sweepTask(s, id, &counts); err != nil {
				counts.After = id.Seq - 1 // this task is the next one
				break
			}
		}
		e.auditStep(EntryOf(ctx), counts.Changed)
		return counts, err
	})
	done.Changed += counts.Changed
	done.Skipped += counts.Skipped
	if refusedStep(err) {
		done.After, done.More = max(counts.After, ids[0].Seq-1), true // counts is zero if the step has not begun
	}
	return err
}

// sweepTask applies the command to one task. An error ends the sweep, because it would apply to the
// next tasks, too.
func (e *Engine) sweepTask(s Sweep, id lease.TaskID, counts *Swept) error {
	e.step(lease.Expire{Task: id}) // its due timers come first (A3)
	t := e.set.task(id)
	if t == nil {
		return nil
	}
	c, skip := s.Choose(t)
	if c == nil || skip {
		if skip {
			counts.Skipped++
		}
		return nil
	}
	if err := e.retryQuota(c); err != nil {
		return err
	}
	if e.step(c).Err != nil {
		counts.Skipped++
	} else {
		counts.Changed++
	}
	return nil
}
