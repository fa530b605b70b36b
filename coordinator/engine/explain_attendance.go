package engine

import (
	"cmp"
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// attendance counts the takers of a queue that pass one test after the other for a task: each
// number counts only takers that were counted in the number before.
type attendance struct {
	attending  int // they ask for work of the queue
	handling   int // they handle the type of the task
	meeting    int // they have what the task requires
	eligible   int // they belong to the worker to which the task is pinned or bound; all, if it is neither
	accepting  int // they take new work at present: they do not drain, are healthy, and have slots
	withSlot   int // they have a free slot
	responsive int // nothing that they did or left out keeps work from them
	withRoom   int // their limits for the type and for bytes leave room for the task
	withKey    int // they may run the concurrency key of the task in addition to their present tasks
	nearby     int // of these, those that look at the first tasks of a line only

	// Why one of those that fail a test fails it:
	closest   *taker    // it does not meet the requirements, and lacks least of all
	lacking   int       // how many things closest lacks
	unwilling string    // it takes no new work
	hindered  hindrance // it has a free slot and gets no work
	crowded   hindrance // it has no room for the task
}

// hindrance is why a taker with a free slot gets no work, or not this task, and what changes that.
// Both are empty if it gets work.
type hindrance struct{ why, remedy string }

// hindered says why a taker with a free slot gets no work.
func (t *taker) hindered() (h hindrance) {
	switch {
	case t.awaitsFrame:
		h = hindrance{
			"it has lost a task because it was silent, and has sent nothing since",
			"the worker sends a frame",
		}
	case t.refused.tooMany():
		h = hindrance{
			fmt.Sprintf("it has refused tasks of %d concurrency keys", t.refused.paused),
			"the pause after one of these refusals ends",
		}
	case t.makesRoom != nil:
		h = hindrance{"it makes room for a task with much data that has waited for it", "enough of its tasks end"}
	case t.backlogged():
		h = hindrance{"it does not read what was sent to it", "the worker reads it"}
	}
	return h
}

// crowded says why a taker has no room for a task that it may take.
func (t *taker) crowded(task *lease.Task) hindrance {
	typ := task.Spec.Type
	switch limit := t.wants.TypeLimits[typ]; {
	case t.takes(typ):
		return hindrance{
			fmt.Sprintf("its tasks have %d bytes of payloads and checkpoints, and with the %d of this one it would have more than its max_bytes of %d",
				t.used.bytes, dataSize(task), t.wants.MaxBytes),
			"enough of its tasks end",
		}
	case limit == 0:
		return hindrance{fmt.Sprintf("its limit for tasks of type %q is 0 now", typ), "it raises the limit"}
	default:
		return hindrance{
			fmt.Sprintf("it has %d tasks of type %q, as many as it takes at once", limit, typ),
			"one of them ends",
		}
	}
}

func (t *taker) whyNoSlots() string {
	why := ""
	if t.member != nil && t.member.WhyNoSlots != nil {
		why = t.member.WhyNoSlots()
	}
	return cmp.Or(why, "it offers no slots")
}

// onlyWorker returns the worker to which a task is pinned, or bound by a sticky affinity key; "" if
// any may have it.
func (e *Engine) onlyWorker(t *lease.Task) string {
	if e.isSticky(t) {
		return e.bindings.of(t).worker
	}
	return t.Spec.Pinned()
}

func (e *Engine) attendance(q *queue, t *lease.Task) (a attendance) {
	worker := e.onlyWorker(t)
	for w := range e.workers.allTakers() {
		e.countTaker(&a, w, q, t, worker)
	}
	return a
}

func (e *Engine) countTaker(a *attendance, w *taker, q *queue, t *lease.Task, worker string) {
	if !w.attends(q) {
		return
	}
	if a.attending++; !w.wants.handles(t.Spec.Type) {
		return
	}
	a.handling++
	// not in words: there may be thousands of takers
	if n := w.wants.Capabilities.Missing(t.Spec.Requirements, a.lacking); n > 0 {
		if a.closest == nil || n < a.lacking {
			a.closest, a.lacking = w, n
		}
		return
	}
	if a.meeting++; worker != "" && w.wants.Worker != worker {
		return
	}
	if a.eligible++; w.slots == 0 {
		a.unwilling = w.whyNoSlots()
		return
	}
	if a.accepting++; len(w.leases) >= w.slots {
		return
	}
	if a.withSlot++; w.hindered() != (hindrance{}) {
		a.hindered = w.hindered()
		return
	}
	if a.responsive++; !w.takes(t.Spec.Type) || !w.hasBytesFor(dataSize(t)) {
		a.crowded = w.crowded(t)
		return
	}
	if a.withRoom++; w.keyTaken(t.Spec.ConcurrencyKey) {
		return
	}
	if a.withKey++; w.wants.limitsByTask() {
		a.nearby++
	}
}

func (e *Engine) isSticky(t *lease.Task) bool {
	return e.bindings.of(t) != nil && t.Spec.Affinity.Mode == lease.Sticky
}
