package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// minGarbage is the least number of bytes that are allocated between two collections.
	minGarbage = 48 << 20
	// idleDelay is how long after the last collection the unused memory is given back to the
	// system.
	idleDelay = time.Second
	// goShare is the percentage of a container's memory that Go may use. The rest is for the
	// kernel: sockets, and pages on their way to the disk.
	goShare = 70
)

// tuneGC makes collections of a small heap rarer, unless the environment sets GOGC or GOMEMLIMIT.
// By default, a collection runs when the program has allocated as much as is live. A coordinator
// has little live memory, and a busy one allocates that much many times a second. When the
// coordinator becomes idle, it gives the additional memory back.
func tuneGC() {
	if os.Getenv("GOMEMLIMIT") == "" {
		limitMemory(memlimit.FromCgroup)
	}
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		p := &gcTuner{}
		p.idle = time.AfterFunc(idleDelay, p.releaseMemory)
		(&gcSentinel{p: p}).collected()
	}
}

// limitMemory makes collections more frequent when the process uses more than goShare of the memory
// that its container has, before the kernel kills it.
func limitMemory(container memlimit.Provider) {
	if limit, err := container(); err == nil { // an error means that there is no limit, or no way to ask for it
		debug.SetMemoryLimit(int64(limit / 100 * goShare))
	}
}

// gcTuner sets at each collection how far the heap may grow until the next one.
type gcTuner struct {
	idle      *time.Timer
	releasing atomic.Bool // releaseMemory has started the present collection, so it is no sign of work
}

// gcSentinel is garbage with a finalizer: each collection calls collected, which sets the finalizer
// again for the next collection.
type gcSentinel struct{ p *gcTuner }

func (c *gcSentinel) collected() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growthPercent(live[0].Value.Uint64()))
	if !c.p.releasing.CompareAndSwap(true, false) {
		c.p.idle.Reset(idleDelay)
	}
	runtime.SetFinalizer(c, (*gcSentinel).collected)
}

func (p *gcTuner) releaseMemory() {
	p.releasing.Store(true)
	debug.FreeOSMemory()
}

// growthPercent returns by how many percent a heap with that many live bytes may grow: by
// minGarbage, but at least by 100.
func growthPercent(live uint64) int { return int(max(100, minGarbage*100/max(live, 1<<20))) }
