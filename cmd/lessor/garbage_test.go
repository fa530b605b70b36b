package main

import "testing"

// A small heap is collected seldom, a large one as always.
func TestGrowthOfTheHeap(t *testing.T) {
	for live, want := range map[uint64]int{0: 4800, 1 << 20: 4800, 16 << 20: 300, 48 << 20: 100, 1 << 30: 100} {
		if got := growth(live); got != want {
			t.Errorf("%d MiB may grow by %d percent, want %d", live>>20, got, want)
		}
	}
}
