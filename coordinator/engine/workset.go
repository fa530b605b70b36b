package engine

import (
	"iter"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/records"
)

// maxIdle bounds the number of waiting tasks that stay in memory until their grant. A small payload
// stays in memory with its task, so that the dispatch need not read it from the store.
var maxIdle = 16_384

// workset holds the newest version of every task that has a live lease, is changed by a batch that
// is not durable yet, or is about to be granted. All other tasks are read from the store, which has
// their newest version. It belongs to the loop.
type workset struct {
	st    store.Store
	tasks map[lease.TaskID]*taskEntry
	// latest is what find or add returned last: a step reads its task first, and then changes the
	// same task.
	latest *taskEntry
	live   int // number of tasks with a lease

	// Entries that batches under way have added to the indexes that the rules read; the store has
	// all other entries.
	ledger   map[ledgerKey]uncommitted[lease.Committed]
	keys     map[keyKey]uncommitted[keyTask]
	discards map[ledgerKey]uncommitted[*lease.Result] // discarded results

	byKey *keyindex.Index // tasks by idempotency key; an entry counts once its task is in the store
	// unknown is a key of no task, the one that was looked up last: a submit asks for its key
	// several times.
	unknown keyKey
	movedIn batchNumber // the last batch with changes of moveKeys
}

// taskEntry is everything that the loop knows about a task, so that one map look-up is enough.
type taskEntry struct {
	id        lease.TaskID
	task      *lease.Task // nil: removed by a batch that is not durable yet
	changedIn batchNumber // the last batch that changed it
	change    *change     // the change of the task in that batch; nil once the batch is durable
	holder    *taker      // the holder of the live lease; see holderOf
	// onDisk: its place is beyond the head of its line, so it need not stay in memory. A refill of
	// the head reads it again.
	onDisk bool
}

type ledgerKey struct {
	task    lease.TaskID
	attempt uint32
}

type keyKey struct {
	space uint32
	key   string
}

type keyTask struct {
	task   lease.TaskID // zero: removed
	digest lease.Digest
}

// uncommitted is an entry that a batch under way has added.
type uncommitted[V any] struct {
	value   V
	addedIn batchNumber // once it is durable the store has the entry
}

func newWorkset(st store.Store) *workset {
	return &workset{
		st:       st,
		tasks:    map[lease.TaskID]*taskEntry{},
		ledger:   map[ledgerKey]uncommitted[lease.Committed]{},
		keys:     map[keyKey]uncommitted[keyTask]{},
		discards: map[ledgerKey]uncommitted[*lease.Result]{},
	}
}

// find returns the entry of a task in memory, or nil.
func (w *workset) find(id lease.TaskID) *taskEntry {
	if entry := w.latest; entry != nil && entry.id == id {
		return entry
	}
	entry := w.tasks[id]
	if entry != nil {
		w.latest = entry
	}
	return entry
}

// add adds a task to the working set.
func (w *workset) add(id lease.TaskID, t *lease.Task) *taskEntry {
	entry := &taskEntry{id: id, task: t}
	w.tasks[id], w.latest = entry, entry
	return entry
}

// task returns the newest version of a task, or nil if there is no such task.
func (w *workset) task(id lease.TaskID) *lease.Task {
	if entry := w.find(id); entry != nil {
		return entry.task
	}
	var t *lease.Task
	w.read(func(r store.Reader) (err error) {
		t, err = records.TaskWithoutLease(r, id) // the task has no lease: every task with a lease is in memory
		return err
	})
	return t
}

// payload returns the payload of a task that is not in memory with the task.
func (w *workset) payload(id lease.TaskID) (payload []byte) {
	w.read(func(r store.Reader) (err error) {
		payload, err = records.Payload(r, id)
		return err
	})
	return payload
}

// addLeased adds a task with a lease that the store has.
func (w *workset) addLeased(t *lease.Task) {
	w.add(t.ID, t)
	w.live++
}

// leases returns how many tasks have a lease.
func (w *workset) leases() int { return w.live }

// leasedTasks returns the tasks that have a lease.
func (w *workset) leasedTasks() iter.Seq2[lease.TaskID, *lease.Task] {
	return func(yield func(lease.TaskID, *lease.Task) bool) {
		for id, entry := range w.tasks {
			if isLeased(entry.task) && !yield(id, entry.task) {
				return
			}
		}
	}
}

// hold sets the holder of a live lease; see holderOf. The working set has all tasks with a live
// lease.
func (w *workset) hold(id lease.TaskID, t *taker) { w.find(id).holder = t }

// holderOf returns the taker that holds the live lease of a task; nil if its session is gone, or it
// was granted to a unary request that was answered.
func (w *workset) holderOf(id lease.TaskID) *taker {
	if entry := w.find(id); entry != nil {
		return entry.holder
	}
	return nil
}

// setOnDisk says whether the place of a task in memory is beyond the head of its line.
func (w *workset) setOnDisk(id lease.TaskID, onDisk bool) { w.find(id).onDisk = onDisk }

// leased returns the newest version of a task if it has a lease, or else nil.
func (w *workset) leased(id lease.TaskID) *lease.Task {
	if entry := w.find(id); entry != nil && isLeased(entry.task) {
		return entry.task
	}
	return nil
}

func (w *workset) committed(id lease.TaskID, attempt uint32) *lease.Committed {
	if f, ok := w.ledger[ledgerKey{id, attempt}]; ok {
		return &f.value
	}
	var c *lease.Committed
	w.read(func(r store.Reader) (err error) {
		c, err = records.Committed(r, id, attempt)
		return err
	})
	return c
}

func (w *workset) discarded(id lease.TaskID, attempt uint32) *lease.Result {
	if f, ok := w.discards[ledgerKey{id, attempt}]; ok {
		return f.value
	}
	var kept *lease.Result
	w.read(func(r store.Reader) (err error) {
		kept, err = records.Discarded(r, id, attempt)
		return err
	})
	return kept
}

func (w *workset) key(space uint32, key string) (id lease.TaskID, d lease.Digest, ok bool) {
	k := keyKey{space, key}
	if f, found := w.keys[k]; found {
		return f.value.task, f.value.digest, f.value.task != lease.TaskID{}
	}
	if k == w.unknown {
		return id, d, false
	}
	if w.byKey.MayHave(store.HashOfKey(space, key)) {
		w.read(func(r store.Reader) (err error) {
			id, d, ok, err = w.byKey.Find(r, space, key)
			return err
		})
	}
	if !ok {
		w.unknown = k
	}
	return id, d, ok
}

// read reads the store on the loop. If the store cannot be read, or a record fails its checksum,
// the loop must not decide anything. Therefore read panics with corrupt; Run recovers from the
// panic and stops the engine. What the loop reads need not be durable yet: it tells what it decides
// after the commit of the present batch, which comes after all that the store has.
func (w *workset) read(fn func(store.Reader) error) {
	if err := store.Peek(w.st, fn); err != nil {
		panic(corrupt{err})
	}
}

type corrupt struct{ err error }

// cache adds a waiting task that was read from the store to the working set, if there is room, so
// that its grant need not read it again.
func (w *workset) cache(t *lease.Task) {
	if w.tasks[t.ID] == nil && w.room() > 0 {
		w.add(t.ID, t)
	}
}

// room returns how many more waiting tasks may be kept in memory.
func (w *workset) room() int { return max(maxIdle-(len(w.tasks)-w.live), 0) }

// put adds a change to a batch, and keeps the new version of the task in memory.
func (w *workset) put(b *batch, c *lease.Change) {
	id, spec := c.Subject()
	var entry *taskEntry
	if c.Old != nil { // a new task cannot be in memory yet
		entry = w.find(id)
	}
	if entry == nil {
		entry = w.add(id, nil)
	}
	b.add(entry, c)
	entry.task = c.New
	if isLeased(c.Old) {
		w.live--
	}
	if isLeased(c.New) {
		w.live++
	}
	for _, done := range c.Ledger {
		w.ledger[ledgerKey{id, done.Attempt}] = uncommitted[lease.Committed]{done, b.number}
	}
	for _, k := range c.Kept {
		w.discards[ledgerKey{id, k.Attempt}] = uncommitted[*lease.Result]{k.Result, b.number}
	}
	switch {
	case spec.IdempotencyKey == "":
	case c.Old == nil:
		w.keys[keyKey{id.Space, spec.IdempotencyKey}] = uncommitted[keyTask]{keyTask{id, c.Key}, b.number}
		w.byKey.Add(records.EntryOfKey(c.New, c.Key))
		w.unknown = keyKey{}
	case c.New == nil:
		w.keys[keyKey{id.Space, spec.IdempotencyKey}] = uncommitted[keyTask]{keyTask{}, b.number}
		w.byKey.Removed()
	}
}

// durable removes from memory what a change no longer needs there once its batch is durable.
func (w *workset) durable(in batchNumber, c *change) {
	if entry := c.entry; entry.changedIn == in {
		entry.change = nil
		w.trim(entry)
	}
	for _, done := range c.Ledger {
		drop(w.ledger, ledgerKey{c.id, done.Attempt}, in)
	}
	for _, k := range c.Kept {
		drop(w.discards, ledgerKey{c.id, k.Attempt}, in)
	}
	if c.key != "" {
		drop(w.keys, keyKey{c.id.Space, c.key}, in)
	}
}

// trim removes a durable task from memory if it need not stay there. Of a task that stays, it drops
// a large payload: the grant that is sent has its own version of the task.
func (w *workset) trim(entry *taskEntry) {
	t := entry.task
	waits := t != nil && t.Rest == lease.Ready && !entry.onDisk && len(w.tasks)-w.live <= maxIdle
	switch {
	case !isLeased(t) && !waits:
		delete(w.tasks, entry.id)
		if w.latest == entry {
			w.latest = nil
		}
	case len(t.Spec.Payload) > records.SmallPayload:
		entry.task = withoutPayload(t)
	}
}

// withoutPayload returns a copy of t without its payload, which is on disk.
func withoutPayload(t *lease.Task) *lease.Task {
	spec := *t.Spec
	spec.Payload = nil
	copied := *t
	copied.Spec = &spec
	return &copied
}

func drop[K comparable, V any](m map[K]uncommitted[V], k K, in batchNumber) {
	if f, ok := m[k]; ok && f.addedIn == in {
		delete(m, k)
	}
}
