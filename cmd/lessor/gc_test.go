package main

import "testing"

// A small heap may grow to many times its size before it is collected. From 48 MiB on, the limit is Go's usual 100 percent.
func TestGrowthOfTheHeap(t *testing.T) {
	for live, want := range map[uint64]int{0: 4800, 1 << 20: 4800, 16 << 20: 300, 48 << 20: 100, 1 << 30: 100} {
		if got := growthPercent(live); got != want {
			t.Errorf("%d MiB may grow by %d percent, want %d", live>>20, got, want)
		}
	}
}
