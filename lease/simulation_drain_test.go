package lease_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// drainWithin is the time after the last fault within which all tasks must end. It is much longer
// than any backoff, TTL, grace or wait for a rate limit that the simulation uses.
const drainWithin = 10 * time.Minute

// drain ends the faults and checks that every task then ends (liveness). From here on, the network
// delivers each message once, all workers do what they must, no queue is paused, and the wall clock
// continues from the latest time that it has shown.
func (w *world) drain() error {
	w.faultsOver = true
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
		if err := w.setQueue(key, resumed); err != nil {
			return err
		}
	}
	began := w.model.now.Serving
	for !w.allEnded() {
		busy, err := w.runWithoutTime()
		if err != nil {
			return err
		}
		if !busy {
			if err := w.advance(w.untilNext()); err != nil {
				return err
			}
		}
		if took := w.model.now.Serving.Sub(began); took > drainWithin {
			return fmt.Errorf("%v after the last fault these tasks have not ended, want all ended within %v:\n%s",
				took, drainWithin, w.unfinishedTasks())
		}
	}
	w.coverage.longestDrain = max(w.coverage.longestDrain, w.model.now.Serving-began)
	return w.compareAll()
}

// waiting returns the tasks that have not ended, in the order of their places in line.
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

func (w *world) allEnded() bool { return len(w.waiting()) == 0 }

func (w *world) unfinishedTasks() (all string) {
	for _, t := range w.waiting() {
		all += fmt.Sprintf("  %+v\n", factsOf(t))
	}
	return all
}

// runWithoutTime lets the network, the workers and the coordinator do all that they can do before
// time passes. busy is false if there was nothing to do.
func (w *world) runWithoutTime() (busy bool, err error) {
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
		for _, h := range slices.Clone(k.held) {
			w.act(k, h)
		}
	}
	if err := w.serve(); err != nil {
		return false, err
	}
	return w.steps > before || len(w.net.up) > 0, nil
}

// serve applies the due timers, brings parked tasks back, and grants READY tasks to workers that
// have room.
func (w *world) serve() error {
	for _, t := range w.waiting() {
		if w.due(t) {
			if err := w.expire(t.ID); err != nil {
				return err
			}
		}
	}
	if err := w.unparkNext(); err != nil {
		return err
	}
	for _, t := range w.waiting() {
		if t.State() != lease.Ready || t.Parked || w.host.Queue(t.ID.Space, t.Spec.Queue).Blocked(w.model.now.Serving) != lease.NoBlock {
			continue
		}
		if k := w.workerWithRoom(); k != nil {
			if err := w.grantTo(k, t.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// workerWithRoom returns a worker that has room for another task, or nil. Grants of which the
// worker has not been told yet take up room.
func (w *world) workerWithRoom() *worker {
	for _, k := range w.workers {
		n := len(k.held)
		for _, t := range w.host.unsent {
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

// untilNext returns how long to wait until something may happen: the next timer, or another try at
// a grant.
func (w *world) untilNext() time.Duration {
	d := 100 * time.Millisecond // a READY task may wait for a rate limit, which has no timer
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
