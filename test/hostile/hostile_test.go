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

// Bounds on what the coordinator may use for an attack. They are generous, because a real fault
// takes all that there is.
const (
	mostHeap       = 192 << 20 // bytes in use during the attack, beyond those before it
	mostGoroutines = 10        // more than before the attack, after it
	rounds         = 5         // of the honest client during each attack, with four calls each
)

// X5: during every kind of attack, an honest client's calls are answered correctly and its worker
// keeps its lease. Memory stays bounded, and nothing of the attack is left afterwards. The latency
// of the honest client is only printed.
func TestHostileClients(t *testing.T) {
	t.Attr("rules", "X5")
	h := newHost(t, 600)
	client := newHonestClient(t, h)
	base := h.goroutines(t)
	slow := h.startSlowClients(t)
	for _, a := range attacks {
		if !t.Run(a.name, func(t *testing.T) { h.runAttack(t, client, a) }) {
			t.FailNow() // what follows would only hide the reason
		}
		h.checkAlive(t)
	}
	slow.end(t)
	h.awaitGoroutines(t, "all attacks", base)
	client.end(t)
}

// attack is a kind of abuse.
type attack struct {
	name    string
	callers int // how many goroutines run send
	least   int // how many hits the attack must land; each send counts in its own unit
	send    func(a *attackRun)
}

var attacks = append(append(frameAttacks, messageAttacks...), httpAttacks...)

// runAttack runs an attack until it has landed enough and the honest client has done its rounds.
func (h *host) runAttack(t *testing.T, b *honestClient, k attack) {
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	before, heap := h.goroutines(t), h.heap(t)
	h.resetPeak(t)
	a := newAttackRun(ctx, t, h, k.least)
	var busy sync.WaitGroup
	for range k.callers {
		busy.Go(func() { k.send(a) })
	}
	took := b.work(t, rounds)
	select {
	case <-a.enough:
	case <-ctx.Done():
		t.Errorf("%d hits of the attack have landed, want at least %d", a.hits.Load(), k.least)
	}
	during := h.heap(t)
	cancel()
	busy.Wait()
	t.Logf("%-28s landed %7d; p50 %8v, p99 %8v; heap %+4d MiB, peak %4d MiB; %v", k.name, a.hits.Load(),
		took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond),
		(during-heap)>>20, h.peak(t)>>20, a.answers())
	if during-heap > mostHeap {
		t.Errorf("the coordinator uses %d MiB during the attack, want at most %d MiB more than the %d MiB before",
			during>>20, mostHeap>>20, heap>>20)
	}
	h.awaitGoroutines(t, k.name, before)
}
