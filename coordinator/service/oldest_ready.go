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

// mostHeads is how many tasks one scrape, and one call about queues, looks at: those in front of their lines. Producers may make any number of lines, and any
// number of tasks may have had an attempt. A variable so that tests can make it small.
var mostHeads = 2000

// afterTask returns the place after which to look for the next task that may have been READY the longest, once the task at a place was looked at.
//
// A task that was never granted has been READY for longer than all behind it, as places are given in that order: the next one is of another line or priority.
// But a task that is READY again after an attempt has its old place (T2), so the one behind it may have been READY for longer.
func afterTask(at store.ReadyKey, t *lease.Task) store.ReadyKey {
	if t.Attempts == 0 {
		at.Place, at.Seq = math.MaxUint64, math.MaxUint64
	}
	return at
}

// OldestReady measures how long tasks have been READY. It reads the first tasks of each line and priority from the store, so it does not need the engine, and
// costs no more than mostHeads tasks do, however many wait.
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
	err := o.store.View(func(r store.Reader) error {
		after := o.after
		o.after = store.ReadyKey{}
		for range mostHeads {
			at, found, err := records.NextReady(r, after)
			if err != nil || !found {
				return err
			}
			t, err := records.ReadyTask(r, at)
			if err != nil {
				return err
			}
			since = min(since, t.ReadyAt)
			after = afterTask(at, t)
		}
		o.after = after
		return nil
	})
	if err != nil {
		o.log.Error("read of the store failed", "error", err)
		return math.NaN()
	}
	return now.Sub(since).Seconds()
}

// waiting is a READY task, and for how long it has been so. atLeast says that another one may have been so for longer.
type waiting struct {
	task    lease.TaskID
	age     time.Duration
	atLeast bool
}

// oldestReady returns the task of each of some queues of a workspace that has been READY the longest, among those that it looks at. It looks at the lines that
// the engine has named, however many lines other queues have: first at the first task of each, then at the second, and so on, so that no line takes all.
func (sh *shared) oldestReady(space engine.Space, queues []engine.QueueInfo) (map[string]waiting, error) {
	number, _ := sh.Engine.SpaceNumber(space)
	type place struct {
		queue string
		after store.ReadyKey // where to go on in a line
	}
	var lines []place
	for i := range queues {
		for _, l := range queues[i].Lines {
			lines = append(lines, place{queues[i].Name, store.ReadyKey{Space: number, Line: records.LineID(l), Priority: math.MaxInt32}})
		}
	}
	oldest, now := map[string]waiting{}, sh.Engine.Now().Serving
	more := map[string]bool{} // queues with tasks at which it does not look
	for i := range queues {
		more[queues[i].Name] = queues[i].MoreLines
	}
	err := sh.longView(func(r store.Reader) error {
		for looked := 0; len(lines) > 0; lines = lines[1:] {
			queue, after := lines[0].queue, lines[0].after
			at, found, err := records.NextReady(r, after)
			if err != nil {
				return err
			}
			switch {
			case !found || at.Space != after.Space || at.Line != after.Line:
				continue
			case looked == mostHeads:
				more[queue] = true
				continue
			}
			t, err := records.ReadyTask(r, at)
			if err != nil {
				return err
			}
			w, found := oldest[queue]
			if age := max(now.Sub(t.ReadyAt), 0); !found || age > w.age || age == w.age && t.ID.Compare(w.task) < 0 {
				oldest[queue] = waiting{task: t.ID, age: age}
			}
			looked++
			lines = append(lines, place{queue, afterTask(at, t)})
		}
		return nil
	})
	for queue, w := range oldest {
		w.atLeast = more[queue]
		oldest[queue] = w
	}
	return oldest, err
}
