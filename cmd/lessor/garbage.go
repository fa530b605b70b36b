package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// leastGarbage is how much is allocated between two collections at least, in bytes.
const leastGarbage = 32 << 20

// collectLess spaces out the collections of a small heap, unless the environment says how often they are to be. By default there is one
// once as much was allocated as lives: little lives in a coordinator, which a busy one allocates many times a second.
func collectLess() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		pace(&cycle{})
	}
}

// cycle is garbage that each collection finds, and so learns of.
type cycle struct{ _ [32]byte }

// pace sets how far the heap may grow until the next collection, and again at each.
func pace(c *cycle) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growth(live[0].Value.Uint64()))
	runtime.SetFinalizer(c, pace)
}

// growth is by how many percent a heap with so many live bytes may grow: by leastGarbage, or else to the double.
func growth(live uint64) int { return int(max(100, leastGarbage*100/max(live, 1<<20))) }
