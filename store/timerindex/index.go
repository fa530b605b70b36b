package timerindex

import (
	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Index has the timers of tasks that wait which may be missing in Timer. Only one goroutine may use
// it.
type Index struct {
	size   int
	recent [2]timers // by clock
	added  []store.TimerKey

	first, next uint64 // numbers of the first record in TimerLog, and of the one after the last
	logged      int    // timers in records that are not from before the last sweep began
	sweep       *sweep // nil: none goes on
	unneeded    uint64 // all timers of the records before this number have been moved or are gone
}

// DefaultSize keeps what is in memory at some 10 MiB at most.
const DefaultSize = 1 << 16

const (
	// shareOfBacklog bounds what is in memory as a share of the tasks that wait: the fewer recent
	// timers there are for each page of Timer, the fewer share one.
	shareOfBacklog = 32
	// stepsOfSweep is in how many steps a sweep ends at the latest.
	stepsOfSweep = 1024
	// askedAtOnce is how many timers of an earlier start a step asks at most: each reads a task
	// from the store.
	askedAtOnce = 1000
	// perRecord is how many timers a record of TimerLog has at most: as many as fit into a page.
	perRecord = 64
	// removedAtOnce is how many records are removed from TimerLog at once.
	removedAtOnce = 128
)

// timers are timers of one clock, in order.
type timers = ordered.Set[timer]

// timer is a timer in memory. It has no clock, to be small.
type timer struct {
	due    int64
	task   lease.TaskID
	unsure bool // it was read from TimerLog by Load: its task may not have it, and Timer may have it, too
}

func newTimers() timers {
	return ordered.NewSet(func(a, b timer) bool {
		if a.due != b.due {
			return a.due < b.due
		}
		return a.task.Compare(b.task) < 0
	})
}

// sweep moves recent timers to Timer, those of one clock after those of the other.
type sweep struct {
	clock store.Clock
	after timer
	next  uint64 // number of the next record of TimerLog when it began
	least int    // how many timers each step moves at least, if there are as many
}

// Load reads TimerLog. size is how many timers must come until a sweep begins.
func Load(r store.Reader, size int) (*Index, error) {
	x := &Index{size: size, recent: [2]timers{newTimers(), newTimers()}}
	err := records.TimerLog(r, func(number uint64, all []store.TimerKey) {
		if x.next == 0 {
			x.first = number
		}
		x.next = number + 1
		x.logged += len(all)
		for _, k := range all {
			x.recent[k.Clock].Set(timer{due: k.Due, task: k.Task, unsure: true})
		}
	})
	x.unneeded = x.first
	return x, err
}

// Add adds a timer that its task did not have before.
func (x *Index) Add(k store.TimerKey) {
	x.recent[k.Clock].Set(timer{due: k.Due, task: k.Task})
	x.added = append(x.added, k)
}

// Remove removes a timer that its task no longer has. inTimer reports whether it may be in Timer,
// from which the caller must then delete it.
func (x *Index) Remove(k store.TimerKey) (inTimer bool) {
	had, ok := x.recent[k.Clock].Delete(timer{due: k.Due, task: k.Task})
	return !ok || had.unsure
}

// Has reports whether a timer is a recent one.
func (x *Index) Has(k store.TimerKey) bool {
	_, ok := x.recent[k.Clock].Get(timer{due: k.Due, task: k.Task})
	return ok
}

// Forget removes a recent timer that its task does not have.
func (x *Index) Forget(k store.TimerKey) { x.recent[k.Clock].Delete(timer{due: k.Due, task: k.Task}) }

// First returns the recent timer of a clock that is due first.
func (x *Index) First(c store.Clock) (k store.TimerKey, ok bool) {
	t, ok := x.recent[c].Min()
	return t.key(c), ok
}

// Len returns how many recent timers there are.
func (x *Index) Len() int {
	return x.recent[store.ServingClock].Len() + x.recent[store.WallClock].Len()
}

func (t timer) key(c store.Clock) store.TimerKey {
	return store.TimerKey{Clock: c, Due: t.due, Task: t.task}
}
