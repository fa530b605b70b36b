package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A container's limit of memory leaves 30 percent to the kernel. Without a limit, or a way to ask
// for it, Go's memory has none.
func TestMemoryLimitOfAContainer(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for _, err := range []error{memlimit.ErrNoLimit, memlimit.ErrCgroupsNotSupported} {
		limitMemory(func() (uint64, error) { return 0, err })
		if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
			t.Errorf("%v: the limit is %d bytes, want none", err, got)
		}
	}
	limitMemory(memlimit.Limit(100 << 20))
	if got := debug.SetMemoryLimit(-1); got != 70<<20 {
		t.Errorf("in a container with 100 MiB the limit is %d bytes, want 70 MiB", got)
	}
}

// A small heap may grow to many times its size before it is collected. From 48 MiB on, the limit is
// Go's usual 100 percent.
func TestGrowthOfTheHeap(t *testing.T) {
	for live, want := range map[uint64]int{0: 4800, 1 << 20: 4800, 16 << 20: 300, 48 << 20: 100, 1 << 30: 100} {
		if got := growthPercent(live); got != want {
			t.Errorf("%d MiB may grow by %d percent, want %d", live>>20, got, want)
		}
	}
}
