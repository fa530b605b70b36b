//go:build !race

package engine

import (
	"runtime"
	"testing"

	"github.com/lessor-dev/lessor/lease"
)

// The table bounds how often each part of a round allocates for 100 tasks. If you reduce a number,
// lower its bound; never raise a bound. The result is the same on every machine, except that a map
// may grow earlier or later.
func TestAllocationsOfARound(t *testing.T) {
	const tasks, rounds = 100, 20
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that no other goroutine allocates while a part runs
	h := newManualEngine(t, 4, tasks/4)
	specs, digests := h.specs(tasks)
	var reports []*lease.Report
	seal := func() { h.batch().seal(h.now().Serving) }
	parts := []struct {
		name string
		most uint64 // for all tasks
		do   func()
		then func() // not counted
	}{
		{"submit", 355, func() { h.submitSpecs(specs, digests) }, seal},
		{"encode submits", 15, h.encodeBatch, h.endBatch},
		{"match", 480, func() { h.match() }, func() { reports = withStarts(h.completions(tasks)); seal() }},
		{"encode grants", 12, h.encodeBatch, h.endBatch},
		{"start and complete", 530, func() { h.complete(reports) }, seal},
		{"encode completions", 12, h.encodeBatch, h.endBatch},
	}
	counts := make([]uint64, len(parts))
	for range rounds {
		for i, part := range parts {
			counts[i] += allocations(part.do)
			part.then()
		}
	}
	for i, part := range parts {
		if n := counts[i] / rounds; n > part.most {
			t.Errorf("%s allocates %d times, want at most %d", part.name, n, part.most)
		}
	}
}

// allocations counts the allocations of one call. testing.AllocsPerRun would repeat the call, but a
// task can be submitted, granted and completed only once.
func allocations(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}
