package lease_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// drainWithin is the time after the last fault in which all tasks come to their end: longer than the longest backoff, TTL, grace and rate
// limit that the simulation deals out.
const drainWithin = 10 * time.Minute

// drain ends the faults and wants every task to come to its end (liveness): the network delivers, workers do what they owe, queues are not
// paused, and the wall clock is where it ever was.
func (w *world) drain() error {
	w.calm = true
	w.model.now.Wall = w.latest
	for _, k := range w.workers {
		k.habit = habits[0]
	}
	for _, key := range queues {
		resumed := lease.Settings{}
		if s := w.host.settings[key]; s != nil {
			resumed = *s
		}
		resumed.Paused = false
		if err := w.set(key, resumed); err != nil {
			return err
		}
	}
	began := w.model.now.Serving
	for !w.drained() {
		busy, err := w.settleDown()
		if err != nil {
			return err
		}
		if !busy {
			if err := w.pass(w.untilNext()); err != nil {
				return err
			}
		}
		if took := w.model.now.Serving.Sub(began); took > drainWithin {
			return fmt.Errorf("not drained %v after the last fault:\n%s", took, w.leftovers())
		}
	}
	w.seen.draining = max(w.seen.draining, w.model.now.Serving-began)
	return w.compareAll()
}

// waiting are the tasks that have not come to their end, in the order of their places.
func (w *world) waiting() []*lease.Task {
	var all []*lease.Task
	for _, t := range w.host.tasks {
		if !t.Rest.Final() {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *lease.Task) int {
		return cmp.Or(cmp.Compare(a.ID.Space, b.ID.Space), cmp.Compare(a.Place, b.Place), cmp.Compare(a.ID.Seq, b.ID.Seq))
	})
	return all
}

func (w *world) drained() bool { return len(w.waiting()) == 0 }

func (w *world) leftovers() (all string) {
	for _, t := range w.waiting() {
		all += fmt.Sprintf("  %+v\n", factsOf(t))
	}
	return all
}

// settleDown does all that can be done at this time; busy tells whether it was anything.
func (w *world) settleDown() (busy bool, err error) {
	before := w.steps
	for len(w.net.up) > 0 {
		if err := w.deliverUp(); err != nil {
			return false, err
		}
	}
	if err := w.commit(); err != nil {
		return false, err
	}
	for len(w.net.down) > 0 {
		if err := w.deliverDown(); err != nil {
			return false, err
		}
	}
	for _, k := range w.workers {
		for _, h := range slices.Clone(k.holds) {
			w.act(k, h)
		}
	}
	if err := w.serve(); err != nil {
		return false, err
	}
	return w.steps > before || len(w.net.up) > 0, nil
}

// serve expires what is due, and grants what waits to whoever has room.
func (w *world) serve() error {
	for _, t := range w.waiting() {
		if w.due(t) {
			if err := w.expire(t.ID); err != nil {
				return err
			}
		}
	}
	if err := w.nudge(); err != nil {
		return err
	}
	for _, t := range w.waiting() {
		if t.State() != lease.Ready || t.Parked || w.host.Queue(t.ID.Space, t.Spec.Queue).Blocked(w.model.now.Serving) != lease.NoBlock {
			continue
		}
		if k := w.idle(); k != nil {
			if err := w.grantTo(k, t.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// idle is a worker with room, those under way to it included.
func (w *world) idle() *worker {
	for _, k := range w.workers {
		n := len(k.holds)
		for _, t := range w.host.untold {
			if t.to == k && t.claim != nil {
				n++
			}
		}
		if n < slots {
			return k
		}
	}
	return nil
}

// untilNext is when time does something next.
func (w *world) untilNext() time.Duration {
	d := 100 * time.Millisecond // a rate limit may let something through
	next := time.Duration(1 << 62)
	for _, t := range w.waiting() {
		serving, wall := t.Due()
		if serving != 0 {
			next = min(next, serving.Sub(w.model.now.Serving))
		}
		if wall != 0 {
			next = min(next, time.Duration(wall-w.model.now.Wall))
		}
		if t.State() == lease.Ready {
			next = min(next, d)
		}
	}
	return max(next, 1)
}

func (w *world) compareAll() error {
	w.touched = append(w.touched[:0], w.tasks...)
	return w.compare()
}
