package timerindex_test

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/timerindex"
	"github.com/lessor-dev/lessor/test/draw"
)

var histories = draw.NewHistories("./store/timerindex", 10)

// world is an index, its store, and a plain set of the timers that tasks have. Commits reach the
// store later than the index hears of their changes, as in the engine.
type world struct {
	*testing.T
	*rand.Rand
	size    int
	st      *memstore.Store
	x       *timerindex.Index
	pending []batch // what is not in the store yet; the last one is being filled
	durable timerSet
	has     timerSet
	asked   int // about how many timers of an earlier start a step has asked
}

type timerSet map[store.TimerKey]bool

// batch is a batch with the timers that tasks have after it.
type batch struct {
	gone    []store.TimerKey // to be removed from Timer
	changes timerindex.Changes
	has     timerSet
}

func newWorld(t *testing.T, seed uint64, size int) *world {
	w := &world{
		T: t, Rand: rand.New(rand.NewPCG(seed, 0)), size: size, st: memstore.New(), pending: make([]batch, 1),
		durable: timerSet{}, has: timerSet{},
	}
	w.load()
	return w
}

func (w *world) load() {
	w.Helper()
	if err := w.st.View(func(r store.Reader) (err error) { w.x, err = timerindex.Load(r, w.size); return err }); err != nil {
		w.Fatal(err)
	}
}

func wall(due int64, seq uint64) store.TimerKey {
	return store.TimerKey{Clock: store.WallClock, Due: due, Task: lease.TaskID{Space: 1, Seq: seq}}
}

func (w *world) add(k store.TimerKey) {
	if !w.has[k] {
		w.x.Add(k)
		w.has[k] = true
	}
}

func (w *world) remove(k store.TimerKey) {
	if w.x.Remove(k) {
		last := &w.pending[len(w.pending)-1]
		last.gone = append(last.gone, k)
	}
	delete(w.has, k)
}

// seal hands the present batch over, and begins the next one.
func (w *world) seal() timerindex.Changes {
	last := &w.pending[len(w.pending)-1]
	last.changes = w.x.Step(0, func(k store.TimerKey) bool { w.asked++; return w.has[k] })
	last.has = maps.Clone(w.has)
	w.pending = append(w.pending, batch{})
	return last.changes
}

// commit makes the oldest batches durable, all but the last n.
func (w *world) commit(n int) {
	w.Helper()
	for len(w.pending) > max(n, 1) {
		var b store.Batch
		for _, k := range w.pending[0].gone {
			records.DeleteTimer(&b, k)
		}
		w.pending[0].changes.Put(&b)
		w.checkRemovals(&b)
		if err := w.st.Commit(w.Context(), &b); err != nil {
			w.Fatal(err)
		}
		w.durable, w.pending = w.pending[0].has, w.pending[1:]
		w.checkStore()
	}
}

// checkRemovals checks that a batch removes no records of TimerLog that do not exist: each costs a
// search.
func (w *world) checkRemovals(b *store.Batch) {
	w.Helper()
	put := map[string]bool{}
	err := w.st.View(func(r store.Reader) error {
		for i := range b.Len() {
			op := b.At(i)
			switch {
			case op.Keyspace != store.TimerLog:
			case !op.Delete:
				put[string(op.Key)] = true
			case !put[string(op.Key)] && r.Get(store.TimerLog, op.Key) == nil:
				w.Fatalf("record %x of TimerLog is removed and does not exist", op.Key)
			}
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
}

// crash loses what is not durable.
func (w *world) crash() {
	w.Helper()
	w.pending, w.has = make([]batch, 1), maps.Clone(w.durable)
	w.load()
}

// inStore returns the timers in Timer and in TimerLog.
func (w *world) inStore() (sorted, logged timerSet, n int) {
	w.Helper()
	sorted, logged = timerSet{}, timerSet{}
	err := w.st.View(func(r store.Reader) error {
		for _, c := range []store.Clock{store.ServingClock, store.WallClock} {
			err := records.Timers(r, store.TimerKey{Clock: c, Due: math.MinInt64},
				func(k store.TimerKey) bool { sorted[k] = true; return true })
			if err != nil {
				return err
			}
		}
		return records.TimerLog(r, func(_ uint64, all []store.TimerKey) {
			n++
			for _, k := range all {
				logged[k] = true
			}
		})
	})
	if err != nil {
		w.Fatal(err)
	}
	return sorted, logged, n
}

// checkStore checks that a start finds each timer that a task has, and that Timer has no others.
func (w *world) checkStore() {
	w.Helper()
	sorted, logged, _ := w.inStore()
	for k := range w.durable {
		if !sorted[k] && !logged[k] {
			w.Fatalf("%v is in neither Timer nor TimerLog", k)
		}
	}
	for k := range sorted {
		if !w.durable[k] {
			w.Fatalf("%v is in Timer, and no task has it", k)
		}
	}
}

// checkMemory checks that each timer that a task has is in memory, or is in Timer once all batches
// are durable.
func (w *world) checkMemory() {
	w.Helper()
	sorted, _, _ := w.inStore()
	for _, b := range w.pending {
		for _, k := range b.gone {
			delete(sorted, k)
		}
		for _, k := range b.changes.Moved {
			sorted[k] = true
		}
	}
	first := map[store.Clock]store.TimerKey{}
	for k := range w.has {
		if !sorted[k] && !w.x.Has(k) {
			w.Fatalf("%v is neither in memory nor in Timer", k)
		}
		if f, ok := first[k.Clock]; w.x.Has(k) && (!ok || compare(k, f) < 0) {
			first[k.Clock] = k
		}
	}
	for c, want := range first {
		if got, ok := w.x.First(c); !ok || compare(got, want) > 0 {
			w.Fatalf("the first recent timer of clock %d is %v, %t; want %v at the latest", c, got, ok, want)
		}
	}
}

func compare(a, b store.TimerKey) int {
	return cmp.Or(cmp.Compare(a.Clock, b.Clock), cmp.Compare(a.Due, b.Due), cmp.Compare(a.Task.Space, b.Task.Space),
		cmp.Compare(a.Task.Seq, b.Task.Seq))
}

// any returns a timer that a task has.
func (w *world) any() (store.TimerKey, bool) {
	if len(w.has) == 0 {
		return store.TimerKey{}, false
	}
	all := slices.SortedFunc(maps.Keys(w.has), compare)
	return all[w.IntN(len(all))], true
}

// T2, T8: whatever comes, goes and crashes, each timer that a task has is found after a start, and
// Timer has no other.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "T2 T8")
	histories.Play(t, playHistory)
}

func playHistory(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, seed, 1+rng.IntN(20))
	spread := int64(1) << rng.IntN(10)
	for range 200 {
		switch w.IntN(10) {
		case 0, 1, 2, 3:
			k := wall(w.Int64N(spread), w.Uint64N(30))
			k.Clock, k.Task.Space = store.Clock(w.IntN(2)), uint32(1+w.IntN(2))
			w.add(k)
		case 4, 5:
			if k, ok := w.any(); ok {
				w.remove(k)
				if w.IntN(3) == 0 { // another version of the task has the same timer
					w.add(k)
				}
			}
		case 6, 7:
			w.seal()
		case 8:
			w.commit(w.IntN(4))
		case 9:
			if w.IntN(4) == 0 {
				w.crash()
			}
			if k, ok := w.x.First(store.Clock(w.IntN(2))); ok && !w.has[k] { // as the engine does when it is due
				w.x.Forget(k)
			}
		}
		w.checkMemory()
	}
	w.seal()
	w.commit(0)
	for _, k := range slices.Collect(maps.Keys(w.has)) {
		w.remove(k)
	}
	w.seal()
	w.commit(0)
	if sorted, _, _ := w.inStore(); len(sorted) > 0 {
		t.Errorf("no task has a timer any more, and Timer has %v", sorted)
	}
}

// However many timers come and go, memory and TimerLog hold no more than about three times as many
// as make a sweep begin, and Timer none of those that went before a sweep.
func TestFloodOfShortTimers(t *testing.T) {
	const size, each = 512, 10
	w := newWorld(t, 1, size)
	var sorted, logged timerSet
	for n := range uint64(1000) {
		for i := range uint64(each) {
			w.add(wall(int64(n), n*each+i))
		}
		w.seal()
		for i := range uint64(each) {
			w.remove(wall(int64(n), n*each+i))
		}
		w.commit(0)
		if n%10 != 0 {
			continue
		}
		if sorted, logged, _ = w.inStore(); len(sorted) > 2*each || len(logged) > 3*size || w.x.Len() > size {
			t.Fatalf("after %d timers, Timer has %d, TimerLog %d, and memory %d", (n+1)*each, len(sorted), len(logged), w.x.Len())
		}
	}
}

// Those that stay are moved in their order, about twice as many as come, so that neighbours are
// written together; then TimerLog forgets them.
func TestSweepMovesNeighbours(t *testing.T) {
	const size, each = 1024, 64
	w := newWorld(t, 1, size)
	var last store.TimerKey
	moved, most := 0, 0
	for n := range uint64(100) {
		for i := range uint64(each) {
			w.add(wall(w.Int64(), n*each+i))
		}
		before := w.x.Len()
		c := w.seal()
		w.commit(0)
		if !slices.IsSortedFunc(c.Moved, compare) {
			t.Fatalf("moved in this order: %v", c.Moved)
		}
		if len(c.Moved) > 0 && before-len(c.Moved) > 0 && compare(c.Moved[0], last) > 0 {
			sorted, _, _ := w.inStore()
			for k := range w.has {
				if compare(k, c.Moved[0]) > 0 && compare(k, c.Moved[len(c.Moved)-1]) < 0 && !sorted[k] {
					t.Fatalf("%v is between those that were moved, and was not", k)
				}
			}
		}
		if len(c.Moved) > 0 {
			last = c.Moved[len(c.Moved)-1]
		}
		moved, most = moved+len(c.Moved), max(most, len(c.Moved))
	}
	if _, logged, _ := w.inStore(); len(logged) > 3*size || w.x.Len() > 2*size {
		t.Errorf("TimerLog has %d, and memory %d", len(logged), w.x.Len())
	}
	if moved < 100*each/2 || most > 3*each {
		t.Errorf("%d of %d timers were moved, up to %d at once; want most, few at once", moved, 100*each, most)
	}
}

// A sweep begins later if more tasks wait: otherwise hardly two of the timers that it moves would
// share a page.
func TestSweepFollowsTheBacklog(t *testing.T) {
	for waiting, want := range map[uint64]bool{0: true, 3200: true, 3201 + 32: false} {
		w := newWorld(t, 1, 10)
		for n := range uint64(100) {
			w.add(wall(int64(n), n))
		}
		if c := w.x.Step(waiting, nil); len(c.Moved) > 0 != want {
			t.Errorf("100 timers came, and %d tasks wait: %d were moved; want some: %t", waiting, len(c.Moved), want)
		}
	}
}

// TimerLog ends even if each timer is due after all that came before, so that all are ahead of the
// sweep, and one is due long after them.
func TestDelaysThatAreAllTheSame(t *testing.T) {
	const size, each, perRecord = 4096, 256, 64
	w := newWorld(t, 1, size)
	w.x.Add(wall(math.MaxInt64, 1))
	logged := 0 // records
	for n := range uint64(200 * each) {
		w.x.Add(wall(int64(n), 2+n))
		if n%each != 0 {
			continue
		}
		var b store.Batch
		c := w.x.Step(0, nil)
		c.Put(&b)
		for i := range b.Len() {
			switch op := b.At(i); {
			case op.Keyspace != store.TimerLog:
			case op.Delete:
				logged--
			default:
				logged++
			}
		}
		if logged > 3*size/perRecord || w.x.Len() > 2*size {
			t.Fatalf("after %d timers, TimerLog has %d records of up to %d, and memory %d timers",
				n, logged, perRecord, w.x.Len())
		}
	}
}

// One commit removes few records of TimerLog, even if each has one timer only.
func TestFewRecordsAreRemovedAtOnce(t *testing.T) {
	w := newWorld(t, 1, 2*timerindex.RemovedAtOnce)
	before := 0
	for n := range uint64(4 * timerindex.RemovedAtOnce) {
		w.add(wall(w.Int64(), n))
		w.seal()
		w.commit(0)
		_, _, now := w.inStore()
		if now < before-timerindex.RemovedAtOnce || now > 8*timerindex.RemovedAtOnce {
			t.Fatalf("%d records were %d before the last commit", now, before)
		}
		before = now
	}
}

// TimerLog ends, however often the coordinator starts again before enough timers for a sweep have
// come.
func TestLogEndsAcrossStarts(t *testing.T) {
	const size = 50
	w := newWorld(t, 1, size)
	for n := range uint64(20 * size) {
		k := wall(int64(n), n)
		w.add(k)
		w.seal()
		w.remove(k)
		if w.commit(0); n%40 == 0 {
			w.crash()
		}
	}
	if _, _, n := w.inStore(); n > 4*size {
		t.Errorf("TimerLog has %d records", n)
	}
}

// T2: a batch with more timers than a record has leaves those of other batches alone.
func TestManyTimersOfOneBatch(t *testing.T) {
	t.Attr("rules", "T2")
	w := newWorld(t, 1, 1<<20)
	for n := range uint64(1000) {
		w.add(wall(w.Int64(), n))
		if n%300 == 299 {
			w.seal()
		}
	}
	w.seal()
	w.commit(0)
	w.crash()
	w.checkMemory()
}

// What comes and goes within a batch is not written.
func TestTimerOfOneBatchIsNotWritten(t *testing.T) {
	w := newWorld(t, 1, 10)
	w.add(wall(1, 1))
	w.remove(wall(1, 1))
	w.seal()
	w.commit(0)
	if _, logged, _ := w.inStore(); len(logged) > 0 {
		t.Errorf("TimerLog has %v", logged)
	}
}

// A step reads few tasks, however many timers a start has found and however many come: the loop
// waits for it. What it leaves out comes in later steps.
func TestStepAsksLittle(t *testing.T) {
	const size = 5000
	w := newWorld(t, 1, size)
	for n := range uint64(size - 1) {
		k := wall(w.Int64(), n)
		k.Clock = store.Clock(n % 2)
		w.add(k)
	}
	w.seal()
	w.commit(0)
	w.crash()
	steps, left := 0, w.x.Len()
	for ; left > 0 && steps < 20; steps++ {
		for n := range uint64(1000) {
			w.add(wall(-1, uint64(steps)*1000+n))
		}
		w.asked = 0
		w.seal()
		w.commit(0)
		if left -= w.asked; w.asked > 1000 {
			t.Fatalf("a step asked about %d timers, want at most 1000", w.asked)
		}
	}
	if left != 0 {
		t.Errorf("after %d steps, %d timers were not asked about", steps, left)
	}
}
