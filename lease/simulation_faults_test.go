package lease_test

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// How time passes, and which faults the coordinator has.

// simBackup is a backup of the store and of the model, for a restore.
type simBackup struct {
	disk    *memory
	model   *model
	serving lease.Instant
}

// passTime moves all clocks forward, often to the next timer of some task, or a nanosecond before
// or after it.
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
	return w.advance(max(d, 0))
}

// advance moves all clocks while the coordinator serves. If leases are live or a batch waits, and
// the serving clock on the disk would become older than a second, advance commits first. Afterwards
// the clock on the disk is at most a second old (A9).
func (w *world) advance(d time.Duration) error {
	save := (w.host.liveLeases > 0 || len(w.host.batch) > 0) &&
		w.model.now.Serving.Add(d).Sub(w.host.diskClock) >= time.Duration(saveClock)
	if save {
		if err := w.commit(); err != nil {
			return err
		}
	}
	w.moveClocks(d)
	if save {
		w.host.diskClock = max(w.host.diskClock, w.model.now.Serving-lease.Instant(w.rng.Int64N(int64(saveClock))))
	}
	return nil
}

func (w *world) moveClocks(d time.Duration) {
	now := &w.model.now
	*now = lease.Now{Serving: now.Serving.Add(d), Wall: now.Wall.Add(d)}
	w.book.uptime = w.book.uptime.Add(d)
	w.latest = max(w.latest, now.Wall)
}

func (w *world) injectFault() error {
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

// standStill stops the coordinator for d, either between two commits or during a slow one. Before
// the coordinator receives any other message, each live lease is extended by this time (A8).
func (w *world) standStill(d time.Duration) error {
	if w.chance(50) {
		if err := w.commit(); err != nil {
			return err
		}
		w.moveClocks(d)
	} else { // a slow commit: workers are told after the stall what was decided before it
		w.moveClocks(d)
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
	if err := w.kill(); err != nil {
		return err
	}
	w.start(w.host.diskClock)
	return nil
}

// kill kills the coordinator. The current batch is either lost, or durable without anybody being
// told of it. Messages on their way to the coordinator are either lost or arrive after the start.
func (w *world) kill() error {
	if w.chance(50) {
		for _, t := range w.durable() {
			if t.report == nil {
				continue
			}
			if err := w.book.reportDurable(&t); err != nil {
				return err
			}
		}
	}
	if w.chance(50) {
		w.net.up = w.net.up[:0]
	}
	return nil
}

// start starts the coordinator from its disk, with the serving clock at the given time, which was
// saved there. While it was down, the wall clock continued, or somebody set it back.
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

// invalidate is a crash and a start with --recovery=invalidate, which begins a new epoch and ends
// all leases (A9). It does not commit the ends of these leases, so a later crash may lose the ends.
// The leases then stay invalid, because their epoch is older (V7).
func (w *world) invalidate() error {
	if err := w.kill(); err != nil {
		return err
	}
	w.start(w.host.diskClock)
	return w.newEpoch()
}

// newEpoch begins a new epoch and requeues the tasks whose leases are of an older one.
func (w *world) newEpoch() error {
	w.model.epoch++
	w.host.rules.Authority = authorityOf(w.model.epoch, w.model.knownFrom)
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
	w.lastBackup = &simBackup{w.host.disk.backup(), w.model.backup(), w.host.diskClock}
	return nil
}

// restore goes back to the last backup, if there is one, and begins a new epoch, which ends the
// leases of the backup (A11).
func (w *world) restore() error {
	if w.lastBackup == nil {
		return nil
	}
	now, epoch := w.model.now, w.model.epoch
	w.model = w.lastBackup.model.backup()
	w.model.now, w.model.epoch, w.model.knownFrom = now, epoch, epoch+1
	w.host.disk = w.lastBackup.disk.backup()
	w.host.diskClock = w.lastBackup.serving
	w.watch.forget()
	w.book.restored()
	w.start(w.lastBackup.serving)
	w.model.useUpRateLimits()
	w.host.useUpRateLimits(w.lastBackup.serving)
	return w.newEpoch()
}
