//go:build faults

package hostile

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Bounds on what the coordinator may hold of an attack. They are generous: what they are to find takes all there is.
const (
	mostHeap       = 192 << 20 // bytes in use while the attack lasts, beyond those before
	mostGoroutines = 10        // left of it when it is over
	rounds         = 5         // of the honest client beside each attack, of four calls each
)

// X5: whatever is said to the coordinator, by however many, an honest client's calls are answered as they should be and its worker keeps its lease; memory
// stays bounded, and nothing of the attack is left when it is over. How fast the honest client was is printed.
func TestHostileClients(t *testing.T) {
	t.Attr("rules", "X5")
	h := newHouse(t)
	bystander := newBystander(t, h)
	base := h.goroutines(t)
	slow := h.beginSlow(t)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) { h.suffer(t, bystander, a) })
		h.lives(t)
	}
	slow.end(t)
	h.settle(t, "all attacks", base)
	bystander.end(t)
}

// attack is a kind of abuse.
type attack struct {
	name    string
	callers int // at once
	least   int // how much of it must have landed, in whatever say counts
	say     func(a *assault)
}

var attacks = append(append(floods, words...), web...)

// suffer lets an attack go on until it has landed and the honest client has done its rounds.
func (h *house) suffer(t *testing.T, b *bystander, k attack) {
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	before, heap := h.goroutines(t), h.heap(t)
	h.forgetPeak(t)
	a := newAssault(ctx, t, h, k.least)
	var busy sync.WaitGroup
	for range k.callers {
		busy.Go(func() { k.say(a) })
	}
	took := b.work(t, rounds)
	select {
	case <-a.landed:
	case <-ctx.Done():
		t.Errorf("%d of %d have landed", a.hits.Load(), k.least)
	}
	during := h.heap(t)
	cancel()
	busy.Wait()
	t.Logf("%-28s landed %7d; p50 %8v, p99 %8v; heap %+4d MiB, peak %4d MiB; %v", k.name, a.hits.Load(),
		took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond), (during-heap)>>20, h.peak(t)>>20, a.answers())
	if during-heap > mostHeap {
		t.Errorf("the coordinator has %d MiB in use, %d MiB before", during>>20, heap>>20)
	}
	h.settle(t, k.name, before)
}
