package limits

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/test/draw"
)

var histories = draw.NewHistories("./test/limits", 1)

// historySteps is the number of steps of a history before its faults end.
const historySteps = 170

// TestRandomHistories plays histories of six to ten tenants against a coordinator whose limits are
// all small. The seed decides the limits, the steps, and what each worker does with each attempt of
// a task. Ids, jitter and the order of goroutines are random, so a seed may need several runs until
// it fails again.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "A4 A5 A6 A10 A11 H1 H2 T1 T5 T11 T12 T13 V7 V17 W10 X3 X5")
	histories.Play(t, playHistory)
	for _, what := range slices.Sorted(maps.Keys(counted.n)) {
		t.Logf("%6d %s", counted.n[what], what)
	}
}

// playHistory plays the history of one seed.
func playHistory(t *testing.T, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	defer lower(t, rng)()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(25 * 366 * 24 * time.Hour) // the clock of a bubble begins in 2000, and epochs count from 2024
		w := newWorld(t, seed, rng)
		defer func() {
			if t.Failed() {
				t.Logf("the last steps:\n%s", strings.Join(w.journal[max(0, len(w.journal)-100):], "\n"))
			}
		}()
		for n := 0; n < historySteps && !t.Failed(); n++ {
			w.step()
		}
		w.end()
	})
}

// step does one random thing, and mostly lets some time pass.
func (w *world) step() {
	type step struct {
		weight int
		do     func(tn *tenant)
	}
	drawn := draw.One(w.rng, []step{
		{10, w.submits},
		{3, w.floods},
		{1, w.storms},
		{1, w.hammers},
		{5, w.streams},
		{7, w.leases},
		{7, w.polls},
		{3, w.posts},
		{10, w.connects},
		{5, w.breaks},
		{6, w.bothers},
		{6, w.commands},
		{3, w.sweeps},
		{6, w.governs},
		{6, w.operates},
		{8, w.reads},
		{4, w.watches},
		{4, w.awaits},
		{1, w.restarts},
		{1, w.backs},
		{1, w.restores},
		{1, w.revokes},
		{3, w.produces},
		{1, w.renews},
		{1, w.fills},
	}, func(s step) int { return s.weight })
	drawn.do(pick(w.rng, w.tenants...))
	switch w.rng.IntN(12) {
	case 0, 1, 2: // the next step comes at once
	case 3:
		time.Sleep(upTo(w.rng, 20*time.Second))
	default:
		time.Sleep(upTo(w.rng, 300*time.Millisecond))
	}
}

// one reports true once in n times.
func one(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// upTo returns a time between 0 and d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d) + 1))
}
