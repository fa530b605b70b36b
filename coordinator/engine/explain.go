package engine

import (
	"context"
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// Explain tells why a task is where it is; see Calls.
func (e *Engine) Explain(ctx context.Context, tenant string, id lease.TaskID) (lease.Explanation, error) {
	return ask(ctx, e, tenant, func() (lease.Explanation, error) { return e.explain(tenant, id) })
}

func (e *Engine) explain(tenant string, id lease.TaskID) (x lease.Explanation, err error) {
	if e.spaces[id.Space] == nil {
		return x, lease.ErrNotFound
	}
	e.step(e.now, lease.Expire{Task: id})
	t := e.set.task(id)
	if t == nil || t.Tenant != tenant {
		return x, lease.ErrNotFound
	}
	x = lease.Explain(e.now, view{e}, t)
	if t.State() == lease.Ready {
		x.Findings = append(e.workersFor(t, heldBack(x.Findings)), x.Findings...)
	}
	return x, nil
}

// heldBack reports whether the rules keep a READY task from being granted.
func heldBack(found []lease.Finding) bool {
	return len(found) > 0 && found[0].Code != lease.FoundTimeLimit && found[0].Code != lease.FoundLateResult
}

// workersFor tells what the workers have to do with it that a task waits. A task that is held back anyway is not told that others are
// before it, or have no room.
func (e *Engine) workersFor(t *lease.Task, held bool) []lease.Finding {
	f := lease.Finding{Since: e.now.WallAt(t.ReadyAt)}
	q := e.spaces[t.ID.Space].queues[t.Spec.Queue]
	attending, taking, free := e.attendance(q, t)
	switch {
	case held:
		return nil
	case attending == 0:
		f.Code, f.Message = lease.FoundNoWorker, fmt.Sprintf("no worker asks for work of queue %q", t.Spec.Queue)
		f.Remedy = "a worker connects for this queue"
	case taking == 0:
		f.Code, f.Message = lease.FoundNoWorkerForType,
			fmt.Sprintf("no worker that asks for work of queue %q handles type %q; there are %d", t.Spec.Queue, t.Spec.Type, attending)
		f.Remedy = "a worker connects that handles the type"
	case free == 0:
		f.Code, f.Message = lease.FoundWorkersBusy, fmt.Sprintf("no worker that would take it has a free slot; there are %d", taking)
		f.Remedy = "a slot becomes free, or another worker connects"
	default:
		f.Code, f.Message = lease.FoundInLine, "it is about to be granted"
		if before, more := q.before(t); before > 0 || more {
			f.Message = fmt.Sprintf("others of its line are before it: %d", before)
			if more {
				f.Message = fmt.Sprintf("others of its line are before it: %d or more", before)
			}
		}
	}
	return []lease.Finding{f}
}

// attendance counts the takers of a queue, those of them who take a task, and those of them who have room for it.
func (e *Engine) attendance(q *queue, t *lease.Task) (attending, taking, free int) {
	count := func(w *taker) {
		for _, attended := range w.queues {
			if attended != q {
				continue
			}
			attending++
			if !w.wants.takes(t.Spec.Type) {
				continue
			}
			if taking++; w.free() > 0 {
				free++
			}
		}
	}
	for _, w := range e.sessions {
		count(w)
	}
	for w := range e.callers {
		count(w)
	}
	return attending, taking, free
}

// before counts the tasks that are before t in its line, as far as they are known in memory; more tells that there may be others.
func (q *queue) before(t *lease.Task) (n int, more bool) {
	l := q.line(t.Line())
	at := placeOf(t)
	seen := false
	l.head.entries.Scan(func(p place) bool {
		if seen = !placeLess(p, at); seen {
			return false
		}
		n++
		return true
	})
	return n, !seen && l.head.more
}
