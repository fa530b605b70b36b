package draw

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"testing"
)

// Histories are the random histories that the random tests of a package play, and the flags
// -random.seed and -random.histories.
type Histories struct {
	pkg  string
	seed *uint64
	n    *int
}

// NewHistories makes the flags. pkg is the package, as one gives it to go test; quick is how many
// histories are played unless the flag says otherwise.
func NewHistories(pkg string, quick int) Histories {
	return Histories{
		pkg: pkg,
		seed: flag.Uint64("random.seed", 1,
			"the seed of the first history; the next ones count up from it; 0 draws it"),
		n: flag.Int("random.histories", quick, "how many histories to play"),
	}
}

// progress is the number of histories after which Play says how many there were.
const progress = 1000

// Play plays one history after another until one fails, and says how to repeat that one. Where a
// panic or a timeout ends the process, the log says where the seeds began and how far it had come.
func (h Histories) Play(t *testing.T, play func(t *testing.T, seed uint64)) {
	t.Helper()
	first := cmp.Or(*h.seed, rand.Uint64N(1<<40)+1)
	t.Logf("seeds from %d on", first)
	n := 0
	for n < *h.n && !t.Failed() {
		h.playOne(t, first+uint64(n), play)
		if n++; n%progress == 0 && n < *h.n {
			t.Logf("histories so far: %d", n)
		}
	}
	t.Logf("histories: %d", n)
}

// playOne plays a history, which may fail by t.FailNow or a panic.
func (h Histories) playOne(t *testing.T, seed uint64, play func(t *testing.T, seed uint64)) {
	t.Helper()
	passed := false
	defer func() {
		if !passed {
			t.Logf("repeat: go test %s -run '^%s$' -random.histories=1 -random.seed=%d", h.pkg, t.Name(), seed)
		}
	}()
	play(t, seed)
	passed = !t.Failed()
}
