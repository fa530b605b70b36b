package coordinator

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

// mostHeads is how many lines one scrape, and one list of queues, looks at, each priority counted as one. Producers may make any number of lines. A variable so that tests can
// make it small.
var mostHeads = 2000

// oldestReady measures how long tasks have been READY. It reads the first task of each line and priority from the store, so it does not need the engine,
// and costs the same however many tasks wait. A task that is READY again after an attempt keeps its place (T2), and may hide an older one for a while.
type oldestReady struct {
	store store.Store
	now   func() lease.Now
	log   *slog.Logger

	mu    sync.Mutex
	after store.ReadyKey // where the next scrape goes on if there are more than mostHeads
}

// seconds returns for how long the task has been READY that has been so the longest, among those that it looks at; 0 if no task is READY, NaN if the store
// cannot be read.
func (o *oldestReady) seconds() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now().Serving
	since, looked := now, 0
	err := o.store.View(func(r store.Reader) error {
		after := o.after
		o.after = store.ReadyKey{}
		return records.ReadyHeads(r, after, func(at store.ReadyKey, t *lease.Task) bool {
			since = min(since, t.ReadyAt)
			if looked++; looked == mostHeads {
				o.after = at
			}
			return looked < mostHeads
		})
	})
	if err != nil {
		o.log.Error("read of the store failed", "error", err)
		return math.NaN()
	}
	return now.Sub(since).Seconds()
}

// oldestReady returns for how long the task of each queue of a workspace has been READY that has been so the longest. It looks at mostHeads lines.
func (e *edge) oldestReady(space engine.Space) (map[string]time.Duration, error) {
	number, ok := e.engine.SpaceNumber(space)
	if !ok {
		return nil, nil
	}
	oldest, now, looked := map[string]time.Duration{}, e.engine.Now().Serving, 0
	err := e.longView(func(r store.Reader) error {
		return records.ReadyHeads(r, store.ReadyKey{Space: number}, func(at store.ReadyKey, t *lease.Task) bool {
			if at.Space != number {
				return false
			}
			oldest[t.Spec.Queue] = max(oldest[t.Spec.Queue], now.Sub(t.ReadyAt))
			looked++
			return looked < mostHeads
		})
	})
	return oldest, err
}
