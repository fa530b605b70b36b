package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// T12: lanes take turns, even if much more waits in one of them; within a lane the order is kept.
func TestLanesTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	l := newLanes[string](nil)
	for i := range 5 {
		l.push("a", fmt.Sprint("a", i))
	}
	l.push("b", "b0")
	l.push("c", "c0")
	l.push("c", "c1")
	var got []string
	for range 3 {
		got = append(got, popOne(t, l))
	}
	l.push("d", "d0")
	for l.len > 0 {
		got = append(got, popOne(t, l))
	}
	if want := []string{"a0", "b0", "c0", "a1", "c1", "d0", "a2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("taken: %v, want %v", got, want)
	}
	if _, ok := l.pop(); ok || len(l.byKey) != 0 || len(l.ring) != 0 {
		t.Errorf("empty lanes give an item: %v; they hold %d keys and a ring of %d; want no item, 0 and 0",
			ok, len(l.byKey), len(l.ring))
	}
}

// T12: a lane that is empty after its turn, and has an item again at once, comes after all other
// lanes that wait.
func TestLaneThatComesBackWaitsItsTurn(t *testing.T) {
	t.Attr("rules", "T12")
	l := newLanes[string](nil)
	keys := []string{"a", "b", "c"}
	for _, k := range keys {
		l.push(k, k)
	}
	for _, k := range keys[:1+rand.IntN(2)] {
		l.push(k, k) // so that some lanes are never empty
	}
	last := map[string]int{}
	for turn := 1; turn < 100; turn++ {
		k := popOne(t, l)
		l.push(k, k)
		if waited := turn - last[k]; waited > len(keys) {
			t.Fatalf("%q had to wait for %d turns, want one of each of the others", k, waited)
		}
		last[k] = turn
	}
	for _, k := range keys {
		if waited := 100 - last[k]; waited > len(keys) {
			t.Errorf("%q still waits after %d turns", k, waited)
		}
	}
}

// If lanes have an order, each lane gives its least item, and the lanes take turns.
func TestOrderedLanesGiveTheirLeastItem(t *testing.T) {
	t.Attr("rules", "T12")
	l := newLanes(func(a, b int) bool { return a < b })
	var want []int
	for range 1000 {
		for n := rand.IntN(5); n > 0; n-- {
			v := rand.IntN(100)
			l.push("a", v)
			want = append(want, v)
		}
		slices.Sort(want)
		l.push("b", -1)
		for range min(2, l.len) {
			v, _ := l.pop()
			if v == -1 {
				continue
			}
			if v != want[0] {
				t.Fatalf("the lane gives %d, want %d, the least of its %d items", v, want[0], len(want))
			}
			want = want[1:]
		}
	}
	if n := l.waiting("a"); n != len(want) {
		t.Errorf("%d items wait in the lane, want %d", n, len(want))
	}
}

// waiting returns how many items the lane of a key holds.
func (l *lanes[V]) waiting(key string) int {
	if in := l.byKey[key]; in != nil {
		return in.len()
	}
	return 0
}

func popOne(t *testing.T, l *lanes[string]) string {
	t.Helper()
	v, ok := l.pop()
	if !ok {
		t.Fatal("the lanes give no item, want one")
	}
	return v
}

// The memory of a lane that is never empty does not grow with the number of items that passed
// through it.
func TestLaneMemoryIsBounded(t *testing.T) {
	l := newLanes[string](nil)
	l.push("a", "first")
	for range 100_000 {
		l.push("a", "next")
		popOne(t, l)
	}
	if c := cap(l.byKey["a"].items); c > 64 || l.waiting("a") != 1 {
		t.Errorf("the lane has a capacity of %d for %d items, want at most 64 for 1", c, l.waiting("a"))
	}
}
