package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// workersFor finds why no worker would get a READY task if nothing else held it back. The code is 0
// if one would. passes says that no worker has to come: those that are there do what it takes.
func (e *Engine) workersFor(t *lease.Task) (f lease.Finding, passes bool) {
	q := e.spaces.of(t.ID).queues[t.Spec.Queue]
	a := e.attendance(q, t)
	f = e.obstacle(q, t, a)
	switch f.Code {
	case lease.FoundNoWorker:
		if q.leftAt != 0 {
			// a worker without a session leaves when it is granted a task, which may be this one
			f.Since = max(q.leftAt, t.ReadySince())
		}
		f.Message += e.sinceStart()
		return f, q.counts[countLeased] > 0
	case lease.FoundNoWorkerForType, lease.FoundRequirements:
		f.Message += e.sinceStart()
		return f, false
	case lease.FoundPinnedWorker, lease.FoundAffinity:
		worker := workerKey{t.Tenant, e.onlyWorker(t)}
		if !e.workers.isPresent(worker) {
			f.Message += e.sinceStart()
		}
		return f, a.eligible > 0 || e.workers.isBusyWithoutSession(worker)
	}
	return f, true
}

// reconnectTime is how long after a start workers may be missing only because they have not come
// back yet. Those of the Go SDK try at least every 10 s, and all come at once.
const reconnectTime = 30 * time.Second

// sinceStart says that a worker which is missing may only not have come back yet, if the
// coordinator has just been restarted. Otherwise it is empty.
func (e *Engine) sinceStart() string {
	up := e.clocks.served()
	if e.clock.base == 0 || up >= reconnectTime { // at the first start of a store, no worker was there before
		return ""
	}
	return fmt.Sprintf("; the coordinator has been up for %v, and workers may still be reconnecting",
		up.Round(100*time.Millisecond))
}

// obstacle finds the first of the tests in attendance that no taker passes. The code is 0 if a
// taker passes all of them.
func (e *Engine) obstacle(q *queue, t *lease.Task, a attendance) lease.Finding {
	switch {
	case a.eligible == 0 && t.Spec.Pinned() != "":
		return e.pinnedAway(t)
	case a.attending == 0:
		return q.unattended()
	case a.handling == 0:
		return a.typeUnhandled(t)
	case a.meeting == 0:
		return a.requirementsUnmet(t)
	case a.withRoom == 0 && e.isSticky(t):
		return e.boundAway(t, a)
	case a.withRoom == 0:
		return a.busy()
	case a.withKey == 0:
		return lease.Finding{
			Code: lease.FoundSingleFlight,
			Message: fmt.Sprintf("every worker with a free slot already runs a task with concurrency key %q, "+
				"and runs only one task of a key at a time, or has refused one and gets none for a while",
				t.Spec.ConcurrencyKey),
			Remedy: "one of these tasks ends, or another worker connects",
		}
	}
	return lease.Finding{}
}

// unattended returns the finding that no worker asks for work from the queue.
func (q *queue) unattended() lease.Finding {
	f := lease.Finding{
		Code:    lease.FoundNoWorker,
		Message: fmt.Sprintf("no worker asks for work from queue %q", q.name),
		Remedy:  "a worker connects for this queue",
	}
	if n := q.counts[countLeased]; n > 0 { // a worker without a session asks only when it has nothing to do
		f.Message += fmt.Sprintf(" at present (live leases of the queue: %d)", n)
		f.Remedy = "a worker that holds one of them is done and asks again, or another worker connects"
	}
	return f
}

// typeUnhandled returns the finding that no worker of the queue handles the type of the task.
func (a *attendance) typeUnhandled(t *lease.Task) lease.Finding {
	kind, remedy := fmt.Sprintf("type %q", t.Spec.Type), "a worker connects that handles the type"
	if t.Spec.Type == "" {
		kind, remedy = "tasks without a type", "a worker connects that handles every type"
	}
	return lease.Finding{
		Code: lease.FoundNoWorkerForType,
		Message: fmt.Sprintf("no worker that asks for work from queue %q handles %s (workers of the queue: %d)",
			t.Spec.Queue, kind, a.attending),
		Remedy: remedy,
	}
}

// requirementsUnmet returns the finding that no worker that handles the type of the task meets its
// requirements.
func (a *attendance) requirementsUnmet(t *lease.Task) lease.Finding {
	f := lease.Finding{
		Code: lease.FoundRequirements,
		Message: fmt.Sprintf("no worker that handles its type meets its requirements "+
			"(workers that handle it: %d); the closest one lacks %s",
			a.handling, strings.Join(a.closest.wants.Capabilities.Lack(t.Spec.Requirements), ", ")),
		Remedy: "a worker connects that meets them",
	}
	if t.Spec.Requirements.Package != "" {
		f.Remedy += ", or one that lacks only the package installs it"
	}
	return f
}

// busy returns the finding that no suitable worker has room for the task.
func (a *attendance) busy() lease.Finding {
	f := lease.Finding{Code: lease.FoundWorkersBusy}
	switch {
	case a.accepting == 0:
		f.Message = fmt.Sprintf("no suitable worker takes new work; of %s: %s", oneOf(a.eligible), a.unwilling)
		f.Remedy = "one of them takes work again, or another worker connects"
	case a.withSlot == 0:
		f.Message = fmt.Sprintf("no suitable worker has a free slot (suitable workers: %d)", a.accepting)
		f.Remedy = "a slot becomes free, or another worker connects"
	case a.responsive == 0:
		f.Message = fmt.Sprintf("no suitable worker with a free slot gets work; of %s: %s",
			oneOf(a.withSlot), a.hindered.why)
		f.Remedy = a.hindered.remedy + ", or another worker connects"
	default:
		f.Message = fmt.Sprintf("no suitable worker with a free slot has room for the task; of %s: %s",
			oneOf(a.responsive), a.crowded.why)
		f.Remedy = a.crowded.remedy + ", or another worker connects"
	}
	return f
}

// oneOf names one of n workers.
func oneOf(n int) string {
	if n == 1 {
		return "the only one"
	}
	return fmt.Sprintf("one of %d", n)
}

// pinnedAway returns the finding that the worker that holds the resources of a task does not take
// the task.
func (e *Engine) pinnedAway(t *lease.Task) lease.Finding {
	f := lease.Finding{
		Code:   lease.FoundPinnedWorker,
		Remedy: "the worker connects for this queue, type and requirements",
	}
	f.Message = fmt.Sprintf("worker %q, which holds its resources, does not ask for such work", t.Spec.Pinned())
	if end := e.workers.absence(workerKey{t.Tenant, t.Spec.Pinned()}); end != nil {
		f.Message = fmt.Sprintf("worker %q, which holds its resources, is not connected", t.Spec.Pinned())
		f.Until, f.Remedy = e.now().WallAt(end.at),
			"the worker connects; otherwise the task is FAILED with RESOURCE_GONE"
	}
	return f
}

// boundAway returns the finding that the worker to which a sticky affinity key is bound does not
// take a task now.
func (e *Engine) boundAway(t *lease.Task, a attendance) lease.Finding {
	b := e.bindings.of(t)
	why, remedy := "has no room for the task", "one of the tasks of the worker ends"
	switch {
	case !e.workers.isPresent(workerKey{t.Tenant, b.worker}):
		why, remedy = "is not connected", "the worker connects"
	case a.eligible == 0:
		why, remedy = "does not ask for such work", "the worker connects for this queue, type and requirements"
	case a.accepting == 0:
		why, remedy = "takes no new work: "+a.unwilling, "the worker takes work again"
	case a.withSlot == 0:
		why, remedy = "has no free slot", "the worker gets a free slot"
	case a.responsive == 0:
		why, remedy = "gets no work: "+a.hindered.why, a.hindered.remedy
	case a.crowded != (hindrance{}):
		why, remedy = "has no room for the task: "+a.crowded.why, a.crowded.remedy
	}
	f := lease.Finding{
		Code:    lease.FoundAffinity,
		Message: fmt.Sprintf("affinity key %q is bound to worker %q, which %s", t.Spec.Affinity.Key, b.worker, why),
		Remedy:  remedy + ", or the binding of the key ends",
	}
	if b.held[b.worker] == 0 && b.end != nil {
		f.Until = e.now().WallAt(b.end.at)
	}
	return f
}

// inLine says how many tasks are before t in its line, as far as the head of the line in memory
// shows.
func (e *Engine) inLine(t *lease.Task) lease.Finding {
	f := lease.Finding{Code: lease.FoundInLine, Message: "it is about to be granted"}
	q := e.spaces.of(t.ID).queues[t.Spec.Queue]
	before, more := q.before(t)
	switch {
	case more:
		f.Message = fmt.Sprintf("tasks before it in its line: %d or more", before)
	case before > 0:
		f.Message = fmt.Sprintf("tasks before it in its line: %d", before)
	}
	if before < mostPassed {
		return f
	}
	if a := e.attendance(q, t); a.withKey > 0 && a.nearby == a.withKey {
		f.Message += fmt.Sprintf("; the workers with a free slot have a max_bytes or single_flight, and look for a task that suits them among the first %d of a line only", mostPassed)
	}
	return f
}

// before counts the tasks that are before t in the head of its line; more says that there may be
// more of them on disk.
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
