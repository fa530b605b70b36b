package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// leastGarbage is how much is allocated between two collections at least, in bytes.
	leastGarbage = 48 << 20
	// quiet is how long after a collection without another one the memory of the garbage goes back to the system.
	quiet = time.Second
)

// collectLess spaces out the collections of a small heap, unless the environment says how often they are to be. By default there is one
// once as much was allocated as lives: little lives in a coordinator, which a busy one allocates many times a second. One that has become
// idle gives back what it held for that.
func collectLess() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		p := &pacer{}
		p.idle = time.AfterFunc(quiet, p.giveBack)
		(&cycle{p: p}).pace()
	}
}

// pacer sets how far the heap may grow until the next collection, at each.
type pacer struct {
	idle   *time.Timer
	giving atomic.Bool // the collection under way gives memory back; it is no sign of work
}

// cycle is garbage that each collection finds, and so learns of.
type cycle struct{ p *pacer }

func (c *cycle) pace() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growth(live[0].Value.Uint64()))
	if !c.p.giving.CompareAndSwap(true, false) {
		c.p.idle.Reset(quiet)
	}
	runtime.SetFinalizer(c, (*cycle).pace)
}

func (p *pacer) giveBack() {
	p.giving.Store(true)
	debug.FreeOSMemory()
}

// growth is by how many percent a heap with so many live bytes may grow: by leastGarbage, or else to the double.
func growth(live uint64) int { return int(max(100, leastGarbage*100/max(live, 1<<20))) }
