package timerindex

import (
	"math"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Changes are what a step changes. They belong into one batch, behind those of all earlier steps,
// and behind what Remove said about timers before this step.
type Changes struct {
	// Moved are the recent timers that are in Timer from now on, in order, those of each clock by
	// themselves.
	Moved []store.TimerKey

	logged       []store.TimerKey
	number       uint64 // of the first record that it adds to TimerLog
	removed, end uint64 // the records of TimerLog from removed to before end are removed
}

// Step returns what the next batch has to write: the timers that were added, a part of a sweep, and
// the removal of records that are not needed any more. waiting is the number of tasks that wait.
// has reports whether the task of a timer has it; it is asked only about timers that Load has read.
func (x *Index) Step(waiting uint64, has func(store.TimerKey) bool) (c Changes) {
	came := len(x.added)
	c.number = x.next
	for _, k := range x.added { // but for those that are gone already
		if x.Has(k) {
			c.logged = append(c.logged, k)
		}
	}
	x.added = x.added[:0]
	x.next += uint64((len(c.logged) + perRecord - 1) / perRecord)
	x.logged += len(c.logged)
	if x.sweep == nil && uint64(x.logged) >= max(uint64(x.size), waiting/shareOfBacklog) {
		x.sweep, x.logged = &sweep{after: timer{due: math.MinInt64}, next: x.next, least: x.Len()/stepsOfSweep + 1}, 0
	}
	if x.sweep != nil {
		// Those that come during a sweep may all be due behind those that were there, as with
		// delays that are all the same. So it moves more than come: otherwise it would hardly come
		// nearer to its end, and until then nothing is removed from TimerLog.
		c.Moved = x.move(x.sweep.least+2*came, has)
	}
	c.removed = x.first
	x.first = min(x.unneeded, x.first+removedAtOnce)
	c.end = x.first
	return c
}

// move does the next part of the sweep, which is that many timers.
func (x *Index) move(most int, has func(store.TimerKey) bool) (moved []store.TimerKey) {
	asked := 0
	for s := x.sweep; most > 0 && asked < askedAtOnce; {
		part := make([]timer, 0, most)
		x.recent[s.clock].Ascend(s.after, func(t timer) bool {
			part = append(part, t)
			if t.unsure {
				asked++
			}
			return len(part) < most && asked < askedAtOnce
		})
		for _, t := range part {
			x.recent[s.clock].Delete(t)
			if k := t.key(s.clock); !t.unsure || has(k) {
				moved = append(moved, k)
			}
			s.after = t
		}
		most -= len(part)
		switch {
		case most == 0 || asked == askedAtOnce:
		case s.clock == store.ServingClock:
			s.clock, s.after = store.WallClock, timer{due: math.MinInt64}
		default:
			x.sweep, x.unneeded = nil, s.next
			return moved
		}
	}
	return moved
}

// Put adds the changes to b.
func (c *Changes) Put(b *store.Batch) {
	for rest, number := c.logged, c.number; len(rest) > 0; number++ {
		n := min(len(rest), perRecord)
		records.PutInTimerLog(b, number, rest[:n])
		rest = rest[n:]
	}
	for _, k := range c.Moved {
		records.PutTimer(b, k)
	}
	for number := c.removed; number < c.end; number++ {
		records.DeleteFromTimerLog(b, number)
	}
}
