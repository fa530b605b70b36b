package engine

import (
	"math"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/timerindex"
)

// dueAtOnce bounds the timers that one round applies, the alarms that it rings, and the changes of
// these, so that a round and its batch stay bounded.
var dueAtOnce = maxBatchOps

// timers has the timers of all tasks, on both clocks. It belongs to the loop.
type timers struct {
	serving *timeline
	wall    *timeline
	// recent has those of waiting tasks that may not be in order on disk yet. Both timelines have
	// it, too.
	recent   *timerindex.Index
	set      *workset
	pipeline *pipeline
}

func newTimers(w *workset, p *pipeline) *timers {
	return &timers{serving: newTimeline(store.ServingClock), wall: newTimeline(store.WallClock), set: w, pipeline: p}
}

// load reads only those timers that are not in order on disk. swept is Config.TimersSwept.
func (ts *timers) load(r store.Reader, swept int) (err error) {
	ts.serving.rest.unread(timerKey{due: math.MinInt64})
	ts.wall.rest.unread(timerKey{due: math.MinInt64})
	ts.recent, err = timerindex.Load(r, swept)
	ts.serving.recent, ts.wall.recent = ts.recent, ts.recent
	return err
}

// add adds the timers of a version of a task.
func (ts *timers) add(t *lease.Task) {
	serving, wall := t.Due()
	ts.serving.add(t, int64(serving))
	ts.wall.add(t, int64(wall))
}

// update updates the timers of a task after a change of the task.
func (ts *timers) update(c *lease.Change) {
	if t := c.Old; t != nil {
		serving, wall := t.Due()
		if ts.serving.drop(t, int64(serving)) {
			ts.pipeline.current().dropTimer(store.ServingTimer(serving, t.ID))
		}
		if ts.wall.drop(t, int64(wall)) {
			ts.pipeline.current().dropTimer(store.WallTimer(wall, t.ID))
		}
	}
	if c.New != nil {
		ts.add(c.New)
		return
	}
	if c.ForgetAt != 0 { // of the ledger of a deleted task
		ts.serving.rest.insert(timerKey{int64(c.ForgetAt), c.Old.ID})
	}
}

// due returns a timer that is due, and the timeline that has it.
func (ts *timers) due(now lease.Now) (k timerKey, of *timeline, ok bool) {
	for _, tl := range [...]*timeline{ts.serving, ts.wall} {
		if tl.rest.dry() {
			ts.refill(tl)
		}
		if k, ok := tl.next(); ok && k.due <= ts.nowOn(tl, now) {
			return k, tl, true
		}
	}
	return k, nil, false
}

func (ts *timers) nowOn(tl *timeline, now lease.Now) int64 {
	if tl == ts.serving {
		return int64(now.Serving)
	}
	return int64(now.Wall)
}

// nextServing returns when the first timer on the serving clock is due, as far as timers are in
// memory.
func (ts *timers) nextServing() (due lease.Instant, ok bool) {
	k, ok := ts.serving.next()
	return lease.Instant(k.due), ok
}

// wait returns how long it is until the next timer is due, at most d.
func (ts *timers) wait(now lease.Now, d time.Duration) time.Duration {
	for _, tl := range [...]*timeline{ts.serving, ts.wall} {
		if k, ok := tl.next(); ok {
			d = min(d, time.Duration(k.due-ts.nowOn(tl, now)))
		}
	}
	return d
}

// refill reads the next timers of tasks at rest from the store.
func (ts *timers) refill(tl *timeline) {
	ts.pipeline.flush()
	var keys []timerKey
	var more bool
	ts.set.read(func(r store.Reader) error {
		after := store.TimerKey{Clock: tl.clock, Due: tl.rest.bound.due, Task: tl.rest.bound.task}
		return records.Timers(r, after, func(k store.TimerKey) bool {
			more = len(keys) == timerHead/2
			if !more {
				keys = append(keys, timerKey{k.Due, k.Task})
			}
			return !more
		})
	})
	tl.rest.refill(keys, more)
}

// move lets a batch write what the timers of waiting tasks need, of which there are so many. The
// batch must not change any further: a timer that its task loses after this would be written to
// Timer after it was removed from there.
func (ts *timers) move(b *batch, tasks uint64) {
	b.timers = ts.recent.Step(tasks, func(k store.TimerKey) bool {
		return slices.Contains(records.WaitingTimers(ts.set.task(k.Task)), k)
	})
	for _, k := range b.timers.Moved {
		tl := ts.serving
		if k.Clock == store.WallClock {
			tl = ts.wall
		}
		tl.rest.insert(timerKey{k.Due, k.Task})
	}
}

// expireDue applies the timers that are due, at most dueAtOnce. It never scans the tasks (T8).
func (e *Engine) expireDue() {
	for range dueAtOnce {
		k, of, ok := e.timers.due(e.now())
		if !ok {
			return
		}
		switch {
		case e.set.task(k.task) != nil:
			e.step(lease.Expire{Task: k.task})
		case of.forgetRecent(k): // it was read at the start, and its task had been removed by then
			continue
		default:
			e.batch().dropLedger(k.task, lease.Instant(k.due))
		}
		of.dropStale(k)
	}
}
