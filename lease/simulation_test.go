package lease_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	simSeed  = flag.Uint64("simulate.seed", 1, "the seed of the first history; the next ones count up from it; 0 draws it")
	simSteps = flag.Int64("simulate.steps", quickSteps, "how many steps to simulate, all histories together")
	simFor   = flag.Duration("simulate.for", 0, "for how long to simulate, instead of a number of steps")
)

const (
	// historySteps is about how many steps a history has until its faults are over.
	historySteps = 4000
	// In a run of at least fullRun steps, each outcome must occur minOccurrences times; in one of
	// at least shortRun steps, once. In a shorter run, no outcome must occur.
	fullRun        = 10_000_000 // what make simulate takes
	minOccurrences = 300
	shortRun       = 400_000
)

// TestSimulation simulates a coordinator and its workers over a bad network. It checks that each
// step has the same result as in the model; that what must always be true stays true (the watcher
// and the book); that all tasks end when the faults are over; and that every possible outcome
// occurred in the run as a whole. See docs/testing/models.md.
func TestSimulation(t *testing.T) {
	t.Attr("rules", "A1 A2 A3 A4 A5 A8 A9 A10 A11 V14 V15 T2 T3 T5 T7 T10 T11 T13")
	first := cmp.Or(*simSeed, rand.Uint64N(1<<40)+1)
	seen := newCoverage()
	steps := simulateMany(t, first, seen)
	t.Logf("%d steps", steps)
	if t.Failed() {
		return
	}
	minimum := int64(0)
	switch {
	case steps >= fullRun:
		minimum = minOccurrences
	case steps >= shortRun:
		minimum = 1
	}
	seen.check(t, minimum)
}

// TestSameSeedGivesTheSameHistory checks the simulation itself: two runs of one seed do the same.
// Otherwise nobody could repeat a failure from its seed.
func TestSameSeedGivesTheSameHistory(t *testing.T) {
	for seed := range uint64(5) {
		once, again := newCoverage(), newCoverage()
		steps, err := simulate(seed, once)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := simulate(seed, again); err != nil || n != steps || !maps.Equal(once.seen, again.seen) {
			t.Errorf("seed %d: %d steps, then %d with error %v; the outcomes are the same: %v; want the same steps and outcomes, and no error",
				seed, steps, n, err, maps.Equal(once.seen, again.seen))
		}
	}
}

// simulateMany runs histories until *simSteps steps are done, or for *simFor, on all processors. It
// returns the number of steps.
func simulateMany(t *testing.T, first uint64, all *coverage) int64 {
	ctx, limit := t.Context(), *simSteps
	if *simFor != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *simFor)
		defer cancel()
		limit = math.MaxInt64
	}
	// collect seldom: a world is small, and most of what it allocates is soon garbage
	defer debug.SetGCPercent(debug.SetGCPercent(1600))
	var done atomic.Int64
	var seeds atomic.Uint64
	var merging sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			seen := newCoverage()
			for done.Load() < limit && ctx.Err() == nil && !t.Failed() {
				steps, err := simulate(first+seeds.Add(1)-1, seen)
				if err != nil {
					t.Error(err)
				}
				done.Add(steps)
			}
			merging.Lock()
			defer merging.Unlock()
			all.add(seen)
		})
	}
	wg.Wait()
	return done.Load()
}

// simulate runs the history of a seed and adds its outcomes to seen. Its error has the last
// commands, and the command line that repeats the history.
func simulate(seed uint64, seen *coverage) (steps int64, err error) {
	w := newWorld(seed, seen)
	for err == nil && w.steps < historySteps {
		err = w.turn()
	}
	if err == nil {
		err = w.drain()
	}
	if err != nil {
		err = fmt.Errorf("step %d: %w\nafter:\n%s\nrepeat: go test ./lease -run TestSimulation -simulate.seed=%d -simulate.steps=1", w.steps, err, w.journal(), seed)
	}
	return w.steps, err
}
