package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
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
	return idLess(a.task, b.task)
}

func idLess(a, b lease.TaskID) bool {
	if a.Space != b.Space {
		return a.Space < b.Space
	}
	return a.Seq < b.Seq
}

// timeline finds the timer that is due next on one of the two clocks, without a scan of the tasks (T8). The timers of leased tasks change with
// every heartbeat and are kept in memory only. The timers of tasks at rest are an index on disk.
type timeline struct {
	clock  store.Clock
	leased *btree.BTreeG[timerKey]
	rest   *head[timerKey]
}

// timerHead is how many timers of tasks at rest are kept in memory per clock.
var timerHead = 4096

func newTimeline(c store.Clock) *timeline {
	return &timeline{
		clock:  c,
		leased: newTree(timerLess),
		rest:   newHead(timerHead, timerLess),
	}
}

// next returns the entry that is due first.
func (t *timeline) next() (k timerKey, ok bool) {
	a, okA := t.leased.Min()
	b, okB := t.rest.first()
	if okA && (!okB || timerLess(a, b)) {
		return a, true
	}
	return b, okB
}

// add adds the timer of a version of a task, and drop removes it. A due of 0 means that the version has no timer.
func (t *timeline) add(id lease.TaskID, due int64, leased bool) {
	switch {
	case due == 0:
	case leased:
		t.leased.Set(timerKey{due, id})
	default:
		t.rest.insert(timerKey{due, id})
	}
}

func (t *timeline) drop(id lease.TaskID, due int64, leased bool) {
	switch {
	case due == 0:
	case leased:
		t.leased.Delete(timerKey{due, id})
	default:
		t.rest.remove(timerKey{due, id})
	}
}
