package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// alarm is a callback at an instant of the serving clock. It is for work that does not concern a single task: tasks have timers of their own.
type alarm struct {
	at   lease.Instant
	n    uint64 // order in which alarms were set, for alarms of the same instant
	ring func()
}

// alarms holds the alarms that are set and have not rung, the next one first.
type alarms struct {
	set  *btree.BTreeG[*alarm]
	last uint64
}

func alarmLess(a, b *alarm) bool { return a.at < b.at || a.at == b.at && a.n < b.n }

// setAlarm makes the loop call ring once the serving clock has reached at.
func (e *Engine) setAlarm(at lease.Instant, ring func()) *alarm {
	e.alarms.last++
	a := &alarm{at: at, n: e.alarms.last, ring: ring}
	e.alarms.set.Set(a)
	return a
}

// stopAlarm cancels an alarm. It does nothing if the alarm has rung, or is nil.
func (e *Engine) stopAlarm(a *alarm) {
	if a != nil {
		e.alarms.set.Delete(a)
	}
}

// ringAlarms calls the alarms that are due, at most dueAtOnce, until they have made so many changes or tried triesPerTurn tasks. An alarm that one of them sets
// rings in the next round at the earliest, even if it is due at once, so that an alarm can leave the rest of its work to the next round.
func (e *Engine) ringAlarms() {
	last, most, end := e.alarms.last, len(e.batch().changes)+dueAtOnce, e.tried+triesPerTurn
	for n := 0; n < dueAtOnce && len(e.batch().changes) < most && e.tried < end; n++ {
		a, ok := e.alarms.set.Min()
		if !ok || a.at > e.now().Serving || a.n > last {
			return
		}
		e.alarms.set.PopMin()
		a.ring()
	}
}
