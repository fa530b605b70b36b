package engine

import (
	"time"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
)

// alarm is a callback at an instant of the serving clock. It is for work that does not concern a
// single task: tasks have timers of their own.
type alarm struct {
	at   lease.Instant
	n    uint64 // order in which alarms were set, for alarms of the same instant
	ring func()
}

func alarmLess(a, b *alarm) bool { return a.at < b.at || a.at == b.at && a.n < b.n }

// alarms holds the alarms that are set and have not rung, the next one first. It belongs to the
// loop.
type alarms struct {
	clocks *clocks
	set    ordered.Set[*alarm]
	last   uint64 // number of the newest alarm
}

func newAlarms(c *clocks) *alarms { return &alarms{clocks: c, set: ordered.NewSet(alarmLess)} }

// in makes the loop call ring once that time has passed.
func (as *alarms) in(d time.Duration, ring func()) *alarm {
	as.last++
	a := &alarm{at: as.clocks.now().Serving.Add(d), n: as.last, ring: ring}
	as.set.Set(a)
	return a
}

// stop cancels an alarm. It does nothing if the alarm has rung, or is nil.
func (as *alarms) stop(a *alarm) {
	if a != nil {
		as.set.Delete(a)
	}
}

// newest returns the number of the newest alarm.
func (as *alarms) newest() uint64 { return as.last }

// pop takes out the next alarm if it is due and no newer than newest; nil: there is none.
func (as *alarms) pop(newest uint64) *alarm {
	a, ok := as.set.Min()
	if !ok || a.at > as.clocks.now().Serving || a.n > newest {
		return nil
	}
	as.set.PopMin()
	return a
}

// wait returns how long it is until the next alarm is due, at most d.
func (as *alarms) wait(now lease.Now, d time.Duration) time.Duration {
	if a, ok := as.set.Min(); ok {
		d = min(d, a.at.Sub(now.Serving))
	}
	return d
}

// ringAlarms calls the alarms that are due, at most dueAtOnce, until they have made so many changes
// or tried triesPerTurn tasks. An alarm that one of them sets rings in the next round at the
// earliest, even if it is due at once, so that an alarm can leave the rest of its work to the next
// round.
func (e *Engine) ringAlarms() {
	newest, most, end := e.alarms.newest(), len(e.batch().changes)+dueAtOnce, e.effort.after(triesPerTurn)
	for n := 0; n < dueAtOnce && len(e.batch().changes) < most && !e.effort.reached(end); n++ {
		a := e.alarms.pop(newest)
		if a == nil {
			return
		}
		a.ring()
	}
}
