package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// alarm is something to do at an instant that is about no task: tasks have timers of their own.
type alarm struct {
	at   lease.Instant
	n    uint64 // tells alarms of one instant apart, in the order in which they were set
	ring func()
}

// alarms are set and not yet rung, the next one first.
type alarms struct {
	set  *btree.BTreeG[*alarm]
	last uint64
}

func newAlarms() alarms {
	return alarms{set: btree.NewBTreeGOptions(func(a, b *alarm) bool {
		return a.at < b.at || a.at == b.at && a.n < b.n
	}, btree.Options{NoLocks: true})}
}

// alarm lets ring be called once the serving clock has come to at.
func (e *Engine) alarm(at lease.Instant, ring func()) *alarm {
	e.alarms.last++
	a := &alarm{at: at, n: e.alarms.last, ring: ring}
	e.alarms.set.Set(a)
	return a
}

// silence takes an alarm back; one that has rung, or is nil, is none.
func (e *Engine) silence(a *alarm) {
	if a != nil {
		e.alarms.set.Delete(a)
	}
}

// ringAlarms rings those that are due.
func (e *Engine) ringAlarms() {
	for {
		a, ok := e.alarms.set.Min()
		if !ok || a.at > e.now.Serving || e.batch.full() {
			return
		}
		e.alarms.set.PopMin()
		a.ring()
	}
}
