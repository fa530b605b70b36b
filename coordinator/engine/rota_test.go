package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// keyWithLines makes a concurrency key with a parked task in a line of each of the queues q0, q1
// and so on. The last one has the oldest task.
func keyWithLines(n int) *concurrencyKey {
	k := newConcurrencyKey(&space{queues: map[string]*queue{}}, "k")
	for i := range n {
		l := &parkedLine{key: k, line: lease.Line{Queue: fmt.Sprint("q", i)}, head: newHead(parkedHead, placeLess)}
		l.head.insert(place{seq: uint64(n - i)})
		k.parked[l.line] = l
	}
	k.rota.begin()
	return k
}

// turns returns the queues whose lines have the next turns, at most so many.
func (r *rota) turns(k *concurrencyKey, most int) (queues []string) {
	for len(queues) < most {
		if len(r.chosen) == 0 {
			r.choose(k)
		}
		if len(r.chosen) == 0 {
			break
		}
		queues = append(queues, r.next().Queue)
	}
	return queues
}

// T11: each line of a concurrency key has its turn after the last change under the key, however
// many lines there are.
func TestRotaHasAllLines(t *testing.T) {
	t.Attr("rules", "T11")
	bound(t, 3, &linesInTurn)
	for n := range 12 {
		for before := range n + 1 {
			k := keyWithLines(n)
			k.rota.turns(k, before)
			k.rota.begin()
			got := k.rota.turns(k, 100)
			slices.Sort(got)
			if again := k.rota.turns(k, 100); len(slices.Compact(got)) != n || len(again) != 0 {
				t.Errorf("of %d lines, begun again after %d turns, %q have turns, and then %q; want all, and then none",
					n, before, got, again)
			}
		}
	}
}

// T2, T12: lines of queues that have a free taker come first, then those of queues whose last grant
// was longer ago, then those with an older task.
func TestRotaIsInOrder(t *testing.T) {
	t.Attr("rules", "T2 T12")
	k := keyWithLines(6)
	for i, q := range []queue{{lastGrant: 1}, {lastGrant: 2}, {lastGrant: 3}, {lastGrant: 4}} {
		if i >= 2 {
			q.available.PushBack(&taker{})
		}
		k.space.queues[fmt.Sprint("q", i)] = &q
	}
	if got, want := k.rota.turns(k, 100), []string{"q2", "q3", "q5", "q4", "q0", "q1"}; !slices.Equal(got, want) {
		t.Errorf("the turns are %q, want %q", got, want)
	}
}
