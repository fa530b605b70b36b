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
	// quiet is how long no collection must have happened until the memory of the garbage is given back to the system.
	quiet = time.Second
)

// collectLess makes collections of a small heap rarer, unless the environment sets how often they are. By default there is one when as much
// was allocated as is live. A coordinator has little live memory, and a busy one allocates that much many times a second. When it becomes
// idle, it gives the additional memory back.
func collectLess() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		p := &pacer{}
		p.idle = time.AfterFunc(quiet, p.giveBack)
		(&cycle{p: p}).pace()
	}
}

// pacer sets at each collection how far the heap may grow until the next one.
type pacer struct {
	idle   *time.Timer
	giving atomic.Bool // the collection under way is by giveBack, and no sign of work
}

// cycle is a piece of garbage: each collection finds it, and so calls pace.
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

// growth returns by how many percent a heap with that many live bytes may grow: by leastGarbage, but at least to the double.
func growth(live uint64) int { return int(max(100, leastGarbage*100/max(live, 1<<20))) }
