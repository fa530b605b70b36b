package lease_test

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Time, and what goes wrong with the coordinator.

type saved struct {
	disk    *memory
	model   *model
	serving lease.Instant
}

// passTime moves all clocks, often just to, or just before, or just past the next timer of some task.
func (w *world) passTime() error {
	d := pick(w, time.Millisecond, 100*time.Millisecond, time.Second, 10*time.Second)
	if t := w.model.tasks[w.anyTask().String()]; t != nil && !t.gone && w.chance(60) {
		serving, wall := w.model.due(t)
		d = serving.Sub(w.model.now.Serving)
		if serving == 0 || wall != 0 && w.chance(50) {
			d = time.Duration(wall - w.model.now.Wall)
		}
		d += time.Duration(w.rng.IntN(3) - 1)
	}
	if w.chance(1) {
		d = pick(w, time.Hour, 30*time.Second)
	}
	return w.pass(max(d, 0))
}

// pass moves all clocks while the coordinator serves. A batch is durable within a second, and so is the serving clock while leases
// are live (A9).
func (w *world) pass(d time.Duration) error {
	save := (w.host.live > 0 || len(w.host.batch) > 0) && w.model.now.Serving.Add(d).Sub(w.host.diskClock) >= time.Duration(saveClock)
	if save {
		if err := w.commit(); err != nil {
			return err
		}
	}
	w.elapse(d)
	if save {
		w.host.diskClock = max(w.host.diskClock, w.model.now.Serving-lease.Instant(w.rng.Int64N(int64(saveClock))))
	}
	return nil
}

func (w *world) elapse(d time.Duration) {
	now := &w.model.now
	*now = lease.Now{Serving: now.Serving.Add(d), Wall: now.Wall.Add(d)}
	w.book.uptime = w.book.uptime.Add(d)
	w.latest = max(w.latest, now.Wall)
}

func (w *world) trouble() error {
	switch n := w.rng.IntN(100); {
	case n < 25:
		return w.standStill(pick(w, 200*time.Millisecond, time.Second, 10*time.Second))
	case n < 40:
		w.model.now.Wall = w.model.now.Wall.Add(pick(w, -time.Hour, -time.Minute, -time.Second, time.Second, time.Minute))
		w.latest = max(w.latest, w.model.now.Wall)
		return nil
	case n < 85:
		return w.crash()
	case n < 88:
		return w.invalidate()
	case n < 96:
		return w.backup()
	default:
		return w.restore()
	}
}

// standStill holds the coordinator up, in itself or in a slow commit: leases get the time back before anything else is heard (A8).
func (w *world) standStill(d time.Duration) error {
	if w.chance(50) {
		if err := w.commit(); err != nil {
			return err
		}
		w.elapse(d)
	} else { // what was decided before is told after
		w.elapse(d)
		if err := w.commit(); err != nil {
			return err
		}
	}
	for _, id := range w.host.leased() {
		if err := w.stall(id, d); err != nil {
			return err
		}
	}
	return w.commit() // which saves the clock
}

// crash ends the coordinator, with the batch under way on the disk or without, told to nobody; and starts it again.
func (w *world) crash() error {
	if err := w.die(); err != nil {
		return err
	}
	w.start(w.host.diskClock)
	return nil
}

func (w *world) die() error {
	if w.chance(50) {
		for _, t := range w.durable() {
			if t.report == nil {
				continue
			}
			if err := w.book.renewed(&t); err != nil {
				return err
			}
		}
	}
	if w.chance(50) {
		w.net.up = w.net.up[:0]
	}
	return nil
}

// start reads the disk at what the serving clock was saved as. Meanwhile the wall clock has gone on, or anywhere.
func (w *world) start(serving lease.Instant) {
	w.model.undo()
	w.model.now.Serving = serving
	w.model.now.Wall = w.model.now.Wall.Add(pick(w, 0, time.Second, time.Minute, -time.Minute))
	w.latest = max(w.latest, w.model.now.Wall)
	w.host.start(serving)
	w.watch.restart(w.host.tasks)
	w.book.starts++
	w.touched = w.touched[:0]
	for _, k := range w.workers {
		w.connect(k)
	}
}

// invalidate is a start with --recovery=invalidate (A9). A crash may come before the leases of before are known to be over; in
// the new epoch they are all the same (V7).
func (w *world) invalidate() error {
	if err := w.die(); err != nil {
		return err
	}
	w.start(w.host.diskClock)
	return w.newEpoch()
}

func (w *world) newEpoch() error {
	w.model.epoch++
	w.host.rules.Authority = authorityOf(w.model.epoch)
	for _, id := range w.host.leased() {
		if t := w.host.Task(id); t.Lease.Epoch != w.model.epoch {
			if err := w.requeue(id, t.Lease.Attempt, lease.CoordinatorRecovered); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) backup() error {
	if err := w.commit(); err != nil {
		return err
	}
	w.saved = &saved{w.host.disk.backup(), w.model.backup(), w.host.diskClock}
	return nil
}

// restore goes back to the backup in a new epoch, which ends its leases (A11).
func (w *world) restore() error {
	if w.saved == nil {
		return nil
	}
	now, epoch := w.model.now, w.model.epoch
	w.model = w.saved.model.backup()
	w.model.now, w.model.epoch = now, epoch
	w.host.disk = w.saved.disk.backup()
	w.host.diskClock = w.saved.serving
	w.watch.forget()
	w.book.restored()
	w.start(w.saved.serving)
	w.model.useUp()
	w.host.useUp(w.saved.serving)
	return w.newEpoch()
}
