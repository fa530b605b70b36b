package service

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// mostHeads is how many tasks one scrape, and one list of queues, looks at: those in front of their lines. Producers may make any number of lines. A variable so
// that tests can make it small.
var mostHeads = 2000

// mostOfLine is how many tasks of each line and priority they look at.
const mostOfLine = 64

// oldestHeads calls fn with the READY tasks that may have been so the longest, until it has looked at mostHeads tasks or fn returns false. It begins with the
// lines after a place, and returns the place where the next one may go on, or zero at the end.
//
// A task that was never granted has been READY for longer than all behind it, as places are given in that order. But a task that is READY again after an attempt
// has its old place (T2). So in each line and priority it looks at all tasks up to the first that was never granted.
func oldestHeads(r store.Reader, after store.ReadyKey, fn func(store.ReadyKey, *lease.Task) bool) (next store.ReadyKey, err error) {
	looked, ofLine := 0, 0
	err = records.ReadyHeads(r, after, func(at store.ReadyKey, t *lease.Task) records.Visit {
		if at.Space != after.Space || at.Line != after.Line || at.Priority != after.Priority {
			ofLine = 0
		}
		after = at
		looked++
		ofLine++
		switch {
		case !fn(at, t):
			return records.Stop
		case looked == mostHeads:
			next = at
			return records.Stop
		case t.Attempts == 0 || ofLine == mostOfLine:
			return records.NextLine
		}
		return records.NextTask
	})
	return next, err
}

// OldestReady measures how long tasks have been READY. It reads the first tasks of each line and priority from the store, so it does not need the engine, and
// costs the same however many tasks wait.
type OldestReady struct {
	store store.Store
	now   func() lease.Now
	log   *slog.Logger

	mu    sync.Mutex
	after store.ReadyKey // where the next scrape goes on if there are more than mostHeads
}

// NewOldestReady returns a measure of the tasks in a store. now returns the present.
func NewOldestReady(st store.Store, now func() lease.Now, log *slog.Logger) *OldestReady {
	return &OldestReady{store: st, now: now, log: log}
}

// Seconds returns for how long the task has been READY that has been so the longest, among those that it looks at; 0 if no task is READY, NaN if the store
// cannot be read.
func (o *OldestReady) Seconds() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now().Serving
	since := now
	err := o.store.View(func(r store.Reader) (err error) {
		o.after, err = oldestHeads(r, o.after, func(_ store.ReadyKey, t *lease.Task) bool {
			since = min(since, t.ReadyAt)
			return true
		})
		return err
	})
	if err != nil {
		o.log.Error("read of the store failed", "error", err)
		return math.NaN()
	}
	return now.Sub(since).Seconds()
}

// waiting is a READY task, and for how long it has been so.
type waiting struct {
	task lease.TaskID
	age  time.Duration
}

// oldestReady returns the task of each queue of a workspace that has been READY the longest, among those that it looks at.
func (sh *shared) oldestReady(space engine.Space) (map[string]waiting, error) {
	number, ok := sh.Engine.SpaceNumber(space)
	if !ok {
		return nil, nil
	}
	oldest, now := map[string]waiting{}, sh.Engine.Now().Serving
	err := sh.longView(func(r store.Reader) error {
		_, err := oldestHeads(r, store.ReadyKey{Space: number}, func(at store.ReadyKey, t *lease.Task) bool {
			if at.Space != number {
				return false
			}
			w, found := oldest[t.Spec.Queue]
			if age := max(now.Sub(t.ReadyAt), 0); !found || age > w.age || age == w.age && t.ID.Compare(w.task) < 0 {
				oldest[t.Spec.Queue] = waiting{t.ID, age}
			}
			return true
		})
		return err
	})
	return oldest, err
}
