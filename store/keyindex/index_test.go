package keyindex_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
	"github.com/lessor-dev/lessor/test/draw"
)

var histories = draw.NewHistories("./store/keyindex", 10)

// world is an index, its store, and a plain map with what it must find. Commits reach the store
// later than the index hears of their changes, as in the engine.
type world struct {
	*testing.T
	*rand.Rand
	size    int
	st      *memstore.Store
	x       *keyindex.Index
	pending []*store.Batch // the batches that are not in the store yet; the last one is being filled
	number  uint64         // of the last of them
	moved   uint64         // number of the last batch with changes of a step
	seq     uint64
	tasks   map[string]task // that exist, by name; see name
}

type task struct {
	lease.Task
	batch uint64 // that submits it
}

func newWorld(t *testing.T, seed uint64, size int) *world {
	w := &world{
		T: t, Rand: rand.New(rand.NewPCG(seed, 0)), size: size, st: memstore.New(), number: 1,
		pending: []*store.Batch{new(store.Batch)},
		tasks:   map[string]task{},
	}
	w.load()
	return w
}

func (w *world) load() {
	w.view(func(r store.Reader) (err error) {
		w.x, err = keyindex.Load(r, w.size)
		return err
	})
}

func (w *world) view(fn func(store.Reader) error) {
	w.Helper()
	if err := w.st.View(fn); err != nil {
		w.Fatal(err)
	}
}

// name is that of a key in a space.
func name(space uint32, key string) string { return fmt.Sprint(space, " ", key) }

func digest(seq uint64) lease.Digest { return lease.Digest{byte(seq), byte(seq >> 8)} }

// submit makes a task with a key, unless one exists.
func (w *world) submit(space uint32, key string) {
	n := name(space, key)
	if _, ok := w.tasks[n]; ok {
		return
	}
	w.seq++
	t := lease.Task{
		ID: lease.TaskID{Space: space, Seq: w.seq}, Tenant: "t", Workspace: "w", Round: 1, Rest: lease.Ready, Place: w.seq,
		Spec: &lease.Spec{Queue: "q", IdempotencyKey: key},
	}
	c := lease.Change{New: &t, Key: digest(w.seq)}
	records.Put(w.pending[len(w.pending)-1], &c)
	w.x.Add(records.EntryOfKey(&t, c.Key))
	w.tasks[n] = task{t, w.number}
}

// remove removes a task.
func (w *world) remove(n string) {
	t := w.tasks[n].Task
	records.Put(w.pending[len(w.pending)-1], &lease.Change{Old: &t})
	w.x.Removed()
	delete(w.tasks, n)
}

// step lets the index do what it has to do for the present batch, if the store has what it did
// last.
func (w *world) step() {
	if !w.x.Busy() || w.moved > w.number-uint64(len(w.pending)) {
		return
	}
	w.view(func(r store.Reader) error {
		changes, err := w.x.Step(r)
		if changes != nil {
			changes(w.pending[len(w.pending)-1])
			w.moved = w.number
		}
		return err
	})
}

// seal begins the next batch.
func (w *world) seal() {
	w.pending = append(w.pending, new(store.Batch))
	w.number++
}

// commit makes the oldest batches durable, all but the last n.
func (w *world) commit(n int) {
	for len(w.pending) > max(n, 1) {
		if err := w.st.Commit(w.Context(), w.pending[0]); err != nil {
			w.Fatal(err)
		}
		w.pending = w.pending[1:]
	}
}

// crash loses what is not durable.
func (w *world) crash() {
	lost := w.number - uint64(len(w.pending)) // the last durable batch
	w.pending = []*store.Batch{new(store.Batch)}
	clear(w.tasks)
	w.view(func(r store.Reader) error {
		for space := range uint32(3) {
			err := records.Tasks(r, space, "", 0, func(t *lease.Task) bool {
				w.tasks[name(space, t.Spec.IdempotencyKey)] = task{*t, lost}
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	w.number, w.moved = lost+1, 0
	w.load()
}

// readFilters reads the filters that a start leaves out.
func (w *world) readFilters() {
	for _, n := range w.x.Unread() {
		f, err := keyindex.ReadFilter(w.st.View, n)
		if err != nil {
			w.Fatal(err)
		}
		w.x.SetFilter(f)
	}
}

// check looks up all keys. Those of batches that are not durable yet are the caller's, who knows
// them.
func (w *world) check(keys []string) {
	w.Helper()
	w.view(func(r store.Reader) error {
		for space := range uint32(3) {
			for _, key := range keys {
				want, exists := w.tasks[name(space, key)]
				if exists && want.batch > w.number-uint64(len(w.pending)) {
					continue
				}
				id, d, found, err := w.x.Find(r, space, key)
				if err != nil {
					return err
				}
				if exists && (!found || id != want.ID || d != digest(id.Seq)) {
					w.Errorf("T1: key %q of space %d leads to task %v with digest %x (found: %t), want task %v with digest %x", key, space, id, d, found, want.ID, digest(want.ID.Seq))
				}
				if found && !w.x.MayHave(store.HashOfKey(space, key)) {
					w.Errorf("key %q of space %d is found, and MayHave says that it cannot be", key, space)
				}
				if has, err := records.HasKey(r, id, store.HashOfKey(space, key)); found && (!has || err != nil) {
					w.Errorf("key %q of space %d leads to task %v, which does not have it (%v)", key, space, id, err)
				}
			}
		}
		return nil
	})
}

// T1: whatever is submitted, removed, moved and lost in a crash, a key leads to the task that has
// it, and to no other.
func TestRandomHistories(t *testing.T) {
	t.Attr("rules", "T1")
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	keyindex.SetLeastOfStep(t, 2)
	histories.Play(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 1+int(seed%6))
		for range 400 {
			switch w.IntN(12) {
			case 0, 1, 2, 3:
				w.submit(w.Uint32N(3), keys[w.IntN(len(keys))])
			case 4, 5:
				if all := w.names(); len(all) > 0 {
					w.remove(all[w.IntN(len(all))])
				}
			case 6, 7, 8:
				w.step()
				w.seal() // the engine asks for one step of a batch
			case 9:
				w.commit(w.IntN(4))
			case 10:
				if w.IntN(8) == 0 {
					w.crash()
				}
			case 11:
				if w.IntN(4) == 0 {
					w.readFilters()
				}
			}
			w.check(keys)
		}
	})
}

// names returns the names of all tasks, in order.
func (w *world) names() []string { return slices.Sorted(maps.Keys(w.tasks)) }

// next makes one step and commits it.
func (w *world) next() {
	w.step()
	w.seal()
	w.commit(0)
}

// fill submits n tasks, "0", "1" and so on, in space 1, and lets the index do all that it has to
// do.
func (w *world) fill(n int) {
	for i := range n {
		w.submit(1, fmt.Sprint(i))
		w.next()
	}
	w.finish()
}

// finish lets the index do all that it has to do.
func (w *world) finish() {
	for w.x.Busy() {
		w.next()
	}
	w.seal()
	w.commit(0)
}

// count returns how many entries a keyspace has.
func (w *world) count(ks store.Keyspace) (n int) {
	w.view(func(r store.Reader) error {
		return r.Scan(ks, nil, nil, func(_, _ []byte) bool { n++; return true })
	})
	return n
}

// What is kept of removed tasks is bounded by what there is of others: when most tasks are gone, so
// are most entries; few long-lived tasks among them keep nothing else.
func TestEntriesOfRemovedTasksGo(t *testing.T) {
	const size, all = 16, 2048
	w := newWorld(t, 1, size)
	w.fill(all)
	if n := w.count(store.KeySegment); n < all-2*size {
		t.Fatalf("%d of %d entries are in segments, want all but the last few", n, all)
	}
	names := w.names()
	const kept = 32
	for i, n := range names {
		if i%(all/kept) != 0 {
			w.remove(n)
		}
		w.next()
	}
	w.finish()
	if n, most := w.count(store.KeySegment)+w.count(store.KeyLog), 4*kept; n > most {
		t.Errorf("%d entries are left when %d tasks are, want at most %d", n, kept, most)
	}
	w.check([]string{"0", "1", "2000"})
}

// Recent entries become a segment in steps of bounded size, and leave the log of keys then. More
// tasks make larger steps, so that a flood does not outrun them.
func TestStepsAreBounded(t *testing.T) {
	const (
		batches  = 200
		underWay = 3 // batches, at most
	)
	for _, perBatch := range []int{0, 100, 2000} {
		const size = 20_000
		w := newWorld(t, 1, size)
		for i := range size {
			w.submit(1, fmt.Sprint(i))
		}
		w.seal()
		w.commit(0)
		steps, longest := 0, 0
		for w.x.Busy() && steps < batches {
			for i := range perBatch {
				w.submit(2, fmt.Sprint(steps, " ", i))
			}
			before := w.pending[len(w.pending)-1].Len()
			w.step()
			steps, longest = steps+1, max(longest, w.pending[len(w.pending)-1].Len()-before)
			w.seal()
			w.commit(1 + w.IntN(underWay))
		}
		if most := max(1000, 4*perBatch*underWay); longest > most || steps == batches && perBatch == 0 {
			t.Errorf("%d tasks in each batch: %d steps of at most %d changes, want less than %d, of %d",
				perBatch, steps, longest, batches, most)
		}
		if n := w.count(store.KeyLog); perBatch > 0 && n > 3*size {
			t.Errorf("%d tasks in each batch: the log has %d entries after %d batches, want at most %d",
				perBatch, n, batches, 3*size)
		}
	}
}

// T1: an entry of a removed task that becomes recent does not hide the entry of the newer task with
// its key, although the store has both steps of neither yet.
func TestNewerTaskOfAKeyStays(t *testing.T) {
	t.Attr("rules", "T1")
	w := newWorld(t, 1, 2)
	w.submit(1, "a")
	w.submit(1, "b")
	w.seal()
	w.finish() // both are in a segment
	w.remove(name(1, "b"))
	w.seal()
	w.commit(0)
	w.remove(name(1, "a")) // the store does not have this yet
	w.submit(1, "a")
	w.step() // half of the segment is gone: its entries are moved
	w.seal()
	w.commit(0)
	w.check([]string{"a", "b"})
}

// Keys of older formats are found, too, and free again when their task is removed.
func TestOlderKeys(t *testing.T) {
	t.Attr("rules", "T1")
	w := newWorld(t, 1, 4)
	storetest.PutOlderKey(w.pending[0], 1, "older", 7, append([]byte{1}, make([]byte, len(lease.Digest{})-1)...))
	w.seal()
	w.commit(0)
	find := func() bool {
		w.load()
		var found bool
		w.view(func(r store.Reader) error {
			id, d, ok, err := w.x.Find(r, 1, "older")
			found = ok && w.x.MayHave(store.HashOfKey(1, "older")) && id == lease.TaskID{Space: 1, Seq: 7} && d == lease.Digest{1}
			return err
		})
		return found
	}
	if !find() {
		t.Error("the key is not found")
	}
	records.Put(w.pending[0], &lease.Change{Old: &lease.Task{ID: lease.TaskID{Space: 1, Seq: 7}, Spec: &lease.Spec{IdempotencyKey: "older"}}})
	w.seal()
	w.commit(0)
	if find() {
		t.Error("the key is found after its task was removed")
	}
}

// What the index keeps is bounded under a load that makes and removes many tasks in each batch,
// too: looking at the segments keeps up with both.
func TestFloodOfShortTasks(t *testing.T) {
	const (
		size     = 2048
		perBatch = 500 // that come, and that go
	)
	keyindex.SetLeastOfStep(t, 250)
	w := newWorld(t, 1, size)
	for batch := range 61 {
		for i := range perBatch {
			w.submit(1, fmt.Sprint(batch, " ", i))
			if batch > 1 {
				w.remove(name(1, fmt.Sprint(batch-2, " ", i)))
			}
		}
		w.step()
		w.seal()
		w.commit(2)
		if batch%10 != 0 {
			continue
		}
		if logged, kept := w.count(store.KeyLog), w.count(store.KeySegment); logged > 3*size || kept > 5*size {
			t.Fatalf("%d tasks after %d, the log of keys has %d entries and the segments %d, want at most %d and %d",
				len(w.tasks), (batch+1)*perBatch, logged, kept, 3*size, 5*size)
		}
	}
}

// Starts leave no segment behind each time, wherever the process before ended.
func TestStartsLeaveNoSegmentsBehind(t *testing.T) {
	const size = 16
	for steps := range 4 {
		w := newWorld(t, 1, size)
		for i := range 2 * size {
			w.submit(1, fmt.Sprint(i))
		}
		w.seal()
		w.commit(0)
		for range 20 {
			for range steps {
				w.next()
			}
			w.crash()
		}
		if n, most := w.count(store.KeySegment)+w.count(store.KeyLog), 3*2*size; n > most {
			t.Errorf("%d entries of %d tasks after 20 starts of %d steps each, want at most %d", n, len(w.tasks), steps, most)
		}
	}
}

// Segments of removed tasks are removed, although no process removes many tasks before it ends, and
// the first segment is worth keeping.
func TestEntriesGoAcrossStarts(t *testing.T) {
	const size, segments = 16, 10
	w := newWorld(t, 1, size)
	w.fill(segments * size)
	for i := size; i < segments*size; i++ {
		w.remove(name(1, fmt.Sprint(i)))
		w.seal()
		w.commit(0)
		w.crash()
		w.finish()
	}
	for range 5 * segments { // each looks at one segment, at least
		w.crash()
		w.finish()
	}
	if n := w.count(store.KeySegment) + w.count(store.KeyLog); n > 3*size {
		t.Errorf("%d entries are left when %d tasks are, want at most %d", n, len(w.tasks), 3*size)
	}
}

// Segments of removed tasks are removed, although those before them are worth keeping.
func TestEachSegmentHasItsTurn(t *testing.T) {
	const size, segments = 16, 10
	w := newWorld(t, 1, size)
	w.fill(segments * size)
	for i := segments * size / 2; i < segments*size; i++ {
		w.remove(name(1, fmt.Sprint(i)))
		w.next()
	}
	w.finish()
	if n, most := w.count(store.KeySegment)+w.count(store.KeyLog), (segments/2+3)*size; n > most {
		t.Errorf("%d entries are left when %d tasks are, want at most %d", n, len(w.tasks), most)
	}
}
