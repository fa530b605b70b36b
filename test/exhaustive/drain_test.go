package exhaustive

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// longest is how long a silent holder can keep a task: two TTL, or cancel_grace, and what the clock lost in a crash (A9).
const longest = int(2*ttl/tick) + 1

// drains shows that from here the system can still finish: when all workers fall silent every lease ends in time, and then a worker that does
// what it should brings every task to its end. A task that is parked for ever would be found here, too (T11).
//
// With a batch under way there is nothing to show: it is committed first, and that is a world of its own.
func (s *scope) drains(w *world) error {
	if w.steps > 0 {
		return nil
	}
	d := w.clone()
	for range longest {
		d.pass()
		for _, t := range d.memory.tasks {
			if err := s.step(d, lease.Expire{Task: t.ID}); err != nil {
				return err
			}
		}
	}
	for i := range d.memory.tasks {
		if t := d.memory.tasks[i]; t.Lease != nil || t.Rest == lease.Scheduled {
			return fmt.Errorf("A9: after %d ticks of silence task %d is %v", longest, i, t.State())
		}
	}
	for i := range d.memory.tasks {
		if err := s.finish(d, i); err != nil {
			return err
		}
	}
	return d.commit()
}

// finish does a task as it should be done.
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
