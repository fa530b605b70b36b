package engine

import (
	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/timerindex"
)

// timerKey is an entry of a timeline: when the next timer of a task is due on its clock.
type timerKey struct {
	due  int64
	task lease.TaskID
}

func timerLess(a, b timerKey) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.task.Compare(b.task) < 0
}

// timeline finds the timer that is due next on one of the two clocks, without a scan of the tasks
// (T8). The timers of leased tasks change with every heartbeat and are kept in memory only. The
// timers of tasks at rest are an index on disk; those of tasks that wait come into it by way of
// package timerindex.
type timeline struct {
	clock  store.Clock
	leased ordered.Set[timerKey]
	rest   *head[timerKey]
	recent *timerindex.Index
}

// timerHead is how many timers of tasks at rest are kept in memory per clock.
var timerHead = 4096

func newTimeline(c store.Clock) *timeline {
	return &timeline{clock: c, leased: ordered.NewSet(timerLess), rest: newHead(timerHead, timerLess)}
}

// next returns the entry that is due first.
func (t *timeline) next() (k timerKey, ok bool) {
	k, ok = t.leased.Min()
	if first, found := t.rest.first(); found && (!ok || timerLess(first, k)) {
		k, ok = first, true
	}
	if first, found := t.recent.First(t.clock); found {
		if first := (timerKey{first.Due, first.Task}); !ok || timerLess(first, k) {
			k, ok = first, true
		}
	}
	return k, ok
}

// inStore returns a timer as the store has it.
func (t *timeline) inStore(k timerKey) store.TimerKey {
	return store.TimerKey{Clock: t.clock, Due: k.due, Task: k.task}
}

// add adds the timer of a version of a task. A due of 0 means that the version has none.
func (t *timeline) add(version *lease.Task, due int64) {
	k := timerKey{due, version.ID}
	switch {
	case due == 0:
	case version.Lease != nil:
		t.leased.Set(k)
	case records.Waits(version):
		t.recent.Add(t.inStore(k))
	default:
		t.rest.insert(k)
	}
}

// drop removes the timer of a version of a task. inTimer reports whether it has to be deleted from
// keyspace Timer, which nobody else does.
func (t *timeline) drop(version *lease.Task, due int64) (inTimer bool) {
	k := timerKey{due, version.ID}
	switch {
	case due == 0:
	case version.Lease != nil:
		t.leased.Delete(k)
	case records.Waits(version):
		t.rest.remove(k)
		return t.recent.Remove(t.inStore(k))
	default:
		t.rest.remove(k)
	}
	return false
}

// forgetRecent forgets a timer, if it is among the recent ones.
func (t *timeline) forgetRecent(k timerKey) bool {
	if !t.recent.Has(t.inStore(k)) {
		return false
	}
	t.recent.Forget(t.inStore(k))
	return true
}

// dropStale removes a timer that is still first after it was applied: the timer of a ledger, or a
// timer that changed nothing in its task. Otherwise the loop would apply the timer again and again.
func (t *timeline) dropStale(k timerKey) {
	if next, ok := t.next(); !ok || next != k {
		return
	}
	t.leased.Delete(k)
	t.rest.remove(k)
	t.recent.Forget(t.inStore(k))
}
