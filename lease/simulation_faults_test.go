package lease_test

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// How time passes, and which faults befall the coordinator.

// saved is a backup, as a restore needs it.
type saved struct {
	disk    *memory
	model   *model
	serving lease.Instant
}

// passTime moves all clocks forward, often to the next timer of some task, or a nanosecond before or after it.
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

// pass moves all clocks while the coordinator serves. If leases are live or a batch waits, it commits once a second has passed since the serving
// clock was last saved. The clock that is on the disk afterwards is at most a second old (A9).
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

// standStill stops the coordinator for d, either between two commits or during a slow one. Before it hears anything else, each live lease gets the
// time back (A8).
func (w *world) standStill(d time.Duration) error {
	if w.chance(50) {
		if err := w.commit(); err != nil {
			return err
		}
		w.elapse(d)
	} else { // a slow commit: what was decided before the stall is told after it
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
	return w.commit() // also saves the serving clock
}

// crash kills the coordinator and starts it again.
func (w *world) crash() error {
	if err := w.die(); err != nil {
		return err
	}
	w.start(w.host.diskClock)
	return nil
}

// die kills the coordinator. The current batch is either durable, though nobody is told of it, or lost. What is on its way to the coordinator is
// either lost or arrives after the start.
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

// start starts the coordinator from its disk, with the serving clock at the given time, which was saved there. While it was down, the wall clock went
// on, or was set back.
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

// invalidate is a crash and a start with --recovery=invalidate, which begins a new epoch and ends all leases (A9). Their ends are not committed here,
// so a later crash may lose them: the leases are not live all the same, because their epoch is older (V7).
func (w *world) invalidate() error {
	if err := w.die(); err != nil {
		return err
	}
	w.start(w.host.diskClock)
	return w.newEpoch()
}

// newEpoch begins a new epoch and requeues the tasks whose leases are of an older one.
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

// restore goes back to the last backup, if there is one, and begins a new epoch, which ends the leases of the backup (A11).
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
