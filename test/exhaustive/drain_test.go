package exhaustive

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// drainTicks is how many ticks a silent worker can keep a task: two TTL, or cancel_grace, and the
// tick that the clock loses in a crash (A9).
const drainTicks = int(2*ttl/tick) + 1

// checkDrain checks that the system can still finish: if all workers fall silent, every lease ends
// in time, and then one worker that behaves correctly completes every task. A task that stays
// parked for ever would be found here, too (T11).
//
// It checks nothing while there is a batch: the world after its commit is checked instead.
func (s *scope) checkDrain(w *world) error {
	if w.steps > 0 {
		return nil
	}
	d := w.clone()
	for range drainTicks {
		d.passTick()
		for _, t := range d.memory.tasks {
			if err := s.step(d, lease.Expire{Task: t.ID}); err != nil {
				return err
			}
		}
	}
	for i := range d.memory.tasks {
		if t := d.memory.tasks[i]; t.Lease != nil || t.Rest == lease.Scheduled {
			return fmt.Errorf("A9: after %d ticks of silence task %d is %v", drainTicks, i, t.State())
		}
	}
	for i := range d.memory.tasks {
		if err := s.finish(d, i); err != nil {
			return err
		}
	}
	return d.commit()
}

// finish takes a task from its present state to COMPLETED.
func (s *scope) finish(w *world, i int) error {
	if w.memory.tasks[i].Rest.Final() {
		return nil
	}
	if err := s.step(w, lease.Unpark{Task: id(i)}); err != nil {
		return err
	}
	if w.memory.tasks[i].Parked {
		return fmt.Errorf("T11: task %d is parked for ever", i)
	}
	if err := s.step(w, s.grant(id(i), 0)); err != nil {
		return err
	}
	if w.memory.tasks[i].Lease == nil {
		return fmt.Errorf("task %d is %v and is not granted, though nobody holds anything", i, w.memory.tasks[i].State())
	}
	if err := w.commit(); err != nil {
		return err
	}
	done := message{task: i, attempt: w.memory.tasks[i].Attempt(), kind: lease.KindComplete}
	if err := s.deliver(w, done); err != nil {
		return err
	}
	if state := w.memory.tasks[i].State(); state != lease.Completed {
		return fmt.Errorf("task %d is %v after its Complete", i, state)
	}
	return nil
}
