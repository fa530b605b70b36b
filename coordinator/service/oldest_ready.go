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

// mostHeads is how many tasks one scrape, and one call about queues, looks at: those in front of their lines. Producers may make any number of lines. A variable
// so that tests can make it small.
var mostHeads = 2000

// mostOfLine is how many tasks of each line and priority they look at.
const mostOfLine = 64

// look goes through the tasks that may have been READY the longest, of one line or of all.
//
// A task that was never granted has been READY for longer than all behind it, as places are given in that order. But a task that is READY again after an attempt
// has its old place (T2). So in each line and priority it looks at all tasks up to the first that was never granted.
type look struct {
	at store.ReadyKey // the task that was looked at last, or a place behind all of its line and priority
	n  int            // how many of its line and priority were looked at
}

// lookAt returns a look that begins with the first task of a line.
func lookAt(space uint32, l lease.Line) look {
	return look{at: store.ReadyKey{Space: space, Line: records.LineID(l), Priority: math.MaxInt32}}
}

// pass records that the task at a place was looked at.
func (k *look) pass(at store.ReadyKey, t *lease.Task) {
	if at.Space != k.at.Space || at.Line != k.at.Line || at.Priority != k.at.Priority {
		k.n = 0
	}
	k.n++
	if k.at = at; t.Attempts == 0 || k.n == mostOfLine {
		k.at.Place, k.at.Seq = math.MaxUint64, math.MaxUint64
	}
}

// OldestReady measures how long tasks have been READY. It reads the first tasks of each line and priority from the store, so it does not need the engine, and
// costs the same however many tasks wait.
type OldestReady struct {
	store store.Store
	now   func() lease.Now
	log   *slog.Logger

	mu   sync.Mutex
	look look // where the next scrape goes on if there are more than mostHeads
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
		k := o.look
		o.look = look{}
		for range mostHeads {
			at, found, err := records.NextReady(r, k.at)
			if err != nil || !found {
				return err
			}
			t, err := records.ReadyTask(r, at)
			if err != nil {
				return err
			}
			since = min(since, t.ReadyAt)
			k.pass(at, t)
		}
		o.look = k
		return nil
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

// oldestReady returns the task of each of some queues of a workspace that has been READY the longest, among those that it looks at. It looks at the lines that
// the engine has named, however many lines other queues have: first at the first task of each, then at the second, and so on, so that no line takes all.
func (sh *shared) oldestReady(space engine.Space, queues []engine.QueueInfo) (map[string]waiting, error) {
	number, _ := sh.Engine.SpaceNumber(space)
	var looks []look
	for i := range queues {
		for _, l := range queues[i].Lines {
			looks = append(looks, lookAt(number, l))
		}
	}
	oldest, now := map[string]waiting{}, sh.Engine.Now().Serving
	err := sh.longView(func(r store.Reader) error {
		for looked := 0; looked < mostHeads && len(looks) > 0; looks = looks[1:] {
			k := looks[0]
			at, found, err := records.NextReady(r, k.at)
			if err != nil {
				return err
			}
			if !found || at.Space != k.at.Space || at.Line != k.at.Line {
				continue
			}
			t, err := records.ReadyTask(r, at)
			if err != nil {
				return err
			}
			w, found := oldest[t.Spec.Queue]
			if age := max(now.Sub(t.ReadyAt), 0); !found || age > w.age || age == w.age && t.ID.Compare(w.task) < 0 {
				oldest[t.Spec.Queue] = waiting{t.ID, age}
			}
			looked++
			k.pass(at, t)
			looks = append(looks, k)
		}
		return nil
	})
	return oldest, err
}
