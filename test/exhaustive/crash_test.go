package exhaustive

import "github.com/lessor-dev/lessor/lease"

// apply takes the changes of a step into memory. It leaves out what no decision depends on: the
// history, and the times of past events.
func (d *database) apply(changes []lease.Change) {
	for i := range changes {
		c := &changes[i]
		n := int(c.New.ID.Seq - 1)
		d.tasks[n] = withoutHistory(c.New)
		for _, done := range c.Ledger {
			done.At, done.RetryAt = 0, 0
			d.ledger[n][done.Attempt-1] = &done
		}
		for _, k := range c.Kept {
			d.kept[n][k.Attempt-1] = true
		}
	}
}

func withoutHistory(task *lease.Task) *lease.Task {
	t := *task
	t.History, t.Dropped, t.ReadyAt, t.FinishedAt, t.Last.At = nil, 0, 0, now.Wall, 0
	if t.Lease != nil {
		l := *t.Lease
		l.Events = nil
		t.Lease = &l
	}
	return &t
}

// commit makes the batch durable, and then tells what was decided in it (A10).
func (w *world) commit() error {
	batch := w.batch
	w.persist()
	for _, n := range batch {
		if err := w.publish(n); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) persist() {
	w.disk, w.batch, w.steps, w.clockBehind = w.memory, nil, 0, 0
}

// crash stops the coordinator and starts it again. It happens either before the batch reached the
// disk, or after that but before anything of it was told (written). The serving clock goes on from
// its stored value, so that downtime does not count (A9).
func (w *world) crash(s *scope, written bool) error {
	if written {
		w.persist()
	}
	w.memory, w.batch, w.steps = w.disk, nil, 0
	w.memory.shift(w.clockBehind)
	w.disk, w.clockBehind = w.memory, 0
	w.crashes++
	if !s.invalidate {
		return nil
	}
	w.epoch++
	for i, t := range w.memory.tasks {
		if t.Lease == nil {
			continue
		}
		if err := s.step(w, lease.Requeue{Task: id(i), Attempt: t.Lease.Attempt, Cause: lease.CoordinatorRecovered}); err != nil {
			return err
		}
	}
	return nil
}

// passTick lets one tick pass. The stored serving clock is at most one tick behind.
func (w *world) passTick() {
	w.memory.shift(-tick)
	w.disk.shift(-tick)
	w.clockBehind = tick
	for i := range w.workerView {
		for j := range w.workerView[i] {
			t := &w.workerView[i][j]
			t.liveUntil = max(t.liveUntil-tick, now.Serving)
		}
	}
	for i := range w.batch {
		w.batch[i].liveUntil = max(w.batch[i].liveUntil-tick, now.Serving)
	}
}

func (d *database) shift(by lease.Instant) {
	for i, task := range d.tasks {
		t := *task
		move(&t.RetryAt, by)
		if t.Lease != nil {
			l := *t.Lease
			move(&l.ExpiresAt, by)
			move(&l.AckBy, by)
			move(&l.CancelBy, by)
			t.Lease = &l
		}
		d.tasks[i] = &t
	}
}

func move(at *lease.Instant, by lease.Instant) {
	if *at != 0 {
		*at += by
	}
}

// overdue returns for how long the oldest due timer has waited; -1 if none is due.
func (d *database) overdue() lease.Instant {
	longest := lease.Instant(-1)
	for _, t := range d.tasks {
		if at, _ := t.Due(); at != 0 {
			longest = max(longest, now.Serving-at)
		}
	}
	return longest
}
