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

// mostHeads is how many tasks one scrape, and one call about queues, looks at: those in front of
// their lines. Producers may make any number of lines, and any number of tasks may have had an
// attempt. A variable so that tests can make it small.
var mostHeads = 2000

// afterTask returns the place after which to look for the next task that may have been READY the
// longest, once the task at a place was looked at.
//
// A task that was never granted has been READY for longer than all behind it, as places are given
// in that order: the next one is of another line or priority. But a task that is READY again after
// an attempt has its old place (T2), so the one behind it may have been READY for longer.
func afterTask(at store.ReadyKey, t *lease.Task) store.ReadyKey {
	if t.Attempts == 0 {
		at.Place, at.Seq = math.MaxUint64, math.MaxUint64
	}
	return at
}

// OldestReady measures how long tasks have been READY. It reads the first tasks of each line and
// priority from the store, so it does not need the engine, and costs no more than mostHeads tasks
// do, however many wait.
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

// Seconds returns for how long the task has been READY that has been so the longest, among those
// that it looks at; 0 if no task is READY, NaN if the store cannot be read.
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

// waiting is a READY task, and for how long it has been so. atLeast says that another one may have
// been so for longer.
type waiting struct {
	found   bool
	task    lease.TaskID
	age     time.Duration
	atLeast bool
}

// searched is a queue whose oldest READY task is looked for.
type searched struct {
	name   string
	lines  []store.ReadyKey // where to go on in each of its lines
	more   bool             // it has tasks at which nobody looks
	oldest waiting          // so far
}

// look looks at the next task of the queue, of its lines in turn. It returns false if there is
// none. If there is one that it may not look at, it notes that there are more.
func (q *searched) look(r store.Reader, now lease.Instant, may bool) (found bool, err error) {
	for ; len(q.lines) > 0; q.lines = q.lines[1:] {
		after := q.lines[0]
		at, found, err := records.NextReady(r, after)
		if err != nil {
			return false, err
		}
		if !found || at.Space != after.Space || at.Line != after.Line {
			continue
		}
		if !may {
			q.more = true
			return false, nil
		}
		t, err := records.ReadyTask(r, at)
		if err != nil {
			return false, err
		}
		if age := max(now.Sub(t.ReadyAt), 0); !q.oldest.found || age > q.oldest.age ||
			age == q.oldest.age && t.ID.Compare(q.oldest.task) < 0 {
			q.oldest = waiting{found: true, task: t.ID, age: age}
		}
		q.lines = append(q.lines[1:], afterTask(at, t))
		return true, nil
	}
	return false, nil
}

// oldestOfQueues returns the task of each of some queues of a workspace that has been READY the
// longest, among those that it looks at: of the lines that the engine has named. The queues take
// turns, so that one with many lines takes none away from the others; and in a queue its lines:
// first the first task of each, then the second, and so on.
func (sh *shared) oldestOfQueues(space engine.Space, queues []engine.QueueInfo) (map[string]waiting, error) {
	number, _ := sh.Engine.SpaceNumber(space)
	turns := make([]*searched, len(queues))
	for i := range queues {
		turns[i] = &searched{name: queues[i].Name, more: queues[i].MoreLines}
		for _, l := range queues[i].Lines {
			turns[i].lines = append(turns[i].lines,
				store.ReadyKey{Space: number, Line: records.LineID(l), Priority: math.MaxInt32})
		}
	}
	oldest, now := map[string]waiting{}, sh.Engine.Now().Serving
	err := sh.longView(func(r store.Reader) error {
		for looked := 0; len(turns) > 0; turns = turns[1:] {
			q := turns[0]
			found, err := q.look(r, now, looked < mostHeads)
			switch {
			case err != nil:
				return err
			case found:
				looked++
				turns = append(turns, q)
			case q.oldest.found:
				q.oldest.atLeast = q.more
				oldest[q.name] = q.oldest
			}
		}
		return nil
	})
	return oldest, err
}
