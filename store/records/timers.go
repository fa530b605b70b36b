package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Waits reports whether a task is neither leased nor final. Its timers belong to package
// timerindex.
func Waits(t *lease.Task) bool { return t != nil && t.Lease == nil && !t.Rest.Final() }

// WaitingTimers returns the next timer on each clock of a task that waits. Others have none of
// these.
func WaitingTimers(t *lease.Task) (all []store.TimerKey) {
	if !Waits(t) {
		return nil
	}
	serving, wall := t.Due()
	if serving != 0 {
		all = append(all, store.ServingTimer(serving, t.ID))
	}
	if wall != 0 {
		all = append(all, store.WallTimer(wall, t.ID))
	}
	return all
}

// PutTimer adds a timer to Timer.
func PutTimer(b *store.Batch, k store.TimerKey) {
	var space [maxIndexKey]byte
	b.Put(store.Timer, k.Append(space[:0]), nil)
}

// DeleteTimer removes a timer from Timer.
func DeleteTimer(b *store.Batch, k store.TimerKey) {
	var space [maxIndexKey]byte
	b.Delete(store.Timer, k.Append(space[:0]))
}

// Timers calls fn with the timers of the clock of after that come after it, in order, until fn
// returns false.
func Timers(r store.Reader, after store.TimerKey, fn func(store.TimerKey) bool) error {
	from := append(after.Append(nil), 0)
	return scan(r, store.Timer, from, store.PrefixEnd([]byte{byte(after.Clock)}), func(key, _ []byte) (bool, error) {
		k, err := store.ParseTimerKey(key)
		return err == nil && fn(k), err
	})
}

// loggedTimersFields are those of a record in TimerLog.
func loggedTimersFields(c *codec, all *[]store.TimerKey) {
	list(c, all, func(c *codec, k *store.TimerKey) {
		num(c, &k.Clock)
		num(c, &k.Due)
		num(c, &k.Task.Space)
		num(c, &k.Task.Seq)
		if k.Clock > store.WallClock {
			c.fail()
		}
	})
}

// PutInTimerLog adds a record to TimerLog.
func PutInTimerLog(b *store.Batch, number uint64, timers []store.TimerKey) {
	var space [8]byte
	put(b, store.TimerLog, store.AppendTimerLogKey(space[:0], number), &timers, loggedTimersFields)
}

// DeleteFromTimerLog removes a record from TimerLog.
func DeleteFromTimerLog(b *store.Batch, number uint64) {
	var space [8]byte
	b.Delete(store.TimerLog, store.AppendTimerLogKey(space[:0], number))
}

// TimerLog calls fn with the records of TimerLog, in order.
func TimerLog(r store.Reader, fn func(number uint64, timers []store.TimerKey)) error {
	return scan(r, store.TimerLog, nil, nil, func(key, value []byte) (bool, error) {
		number, err := store.ParseTimerLogKey(key)
		if err != nil {
			return false, err
		}
		var all []store.TimerKey
		if err := decode(store.TimerLog, key, value, &all, loggedTimersFields); err != nil {
			return false, err
		}
		fn(number, all)
		return true, nil
	})
}
