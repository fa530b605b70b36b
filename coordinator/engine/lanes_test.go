package engine

import (
	"fmt"
	"slices"
	"testing"
)

// T12: lanes take turns, whatever waits in each; within a lane the order stays.
func TestLanesTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	l := newLanes[string]()
	for i := range 5 {
		l.push("a", fmt.Sprint("a", i))
	}
	l.push("b", "b0")
	l.push("c", "c0")
	l.push("c", "c1")
	var got []string
	for range 3 {
		got = append(got, must(t, l))
	}
	l.push("d", "d0")
	for l.len > 0 {
		got = append(got, must(t, l))
	}
	if want := []string{"a0", "b0", "c0", "d0", "a1", "c1", "a2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("taken: %v, want %v", got, want)
	}
	if _, ok := l.pop(); ok || len(l.byKey) != 0 || len(l.ring) != 0 {
		t.Errorf("empty lanes hold %d keys", len(l.byKey))
	}
}

func must(t *testing.T, l *lanes[string]) string {
	t.Helper()
	v, ok := l.pop()
	if !ok {
		t.Fatal("nothing to take")
	}
	return v
}

// A lane that is never empty does not grow with what has passed through it.
func TestLaneMemoryIsBounded(t *testing.T) {
	l := newLanes[string]()
	l.push("a", "first")
	for range 100_000 {
		l.push("a", "next")
		must(t, l)
	}
	if c := cap(l.byKey["a"].items); c > 64 || l.waiting("a") != 1 {
		t.Errorf("capacity %d for %d items", c, l.waiting("a"))
	}
}
