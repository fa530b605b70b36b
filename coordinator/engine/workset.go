package engine

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// maxIdle bounds the waiting tasks that stay in memory for their coming grant. They keep their payload if it is small, so that it need not be read
// for the dispatch.
const maxIdle = 16_384

// workset is the newest version of every task that is live, or not durable yet, or about to be granted; all others are read from
// the store, where their committed version is the newest.
type workset struct {
	st     store.Store
	tasks  map[lease.TaskID]*held
	latest *held // that was looked for: a step asks for its task, and then changes it
	live   int   // held tasks with a lease

	// What batches under way add to the two indexes that the rules ask for; the store answers for the rest.
	ledger map[ledgerKey]fresh[lease.Committed]
	keys   map[keyKey]fresh[keyTask]
	kept   map[ledgerKey]fresh[*lease.Result] // discarded results
}

// held is what the loop knows of a task, all in one place, so that it is looked up once.
type held struct {
	id     lease.TaskID
	task   *lease.Task // nil: removed by a batch that is not durable yet
	batch  uint64      // the last one that changed it
	change *change     // what that batch does to it; nil once it is durable
	holder *taker      // of the live lease; nil: its session is gone, or it was granted to a unary request
	far    bool        // it waits beyond the head of its line, where it is read with those around it when its turn comes near
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

type fresh[V any] struct {
	value V
	batch uint64
}

func newWorkset(st store.Store) *workset {
	return &workset{
		st: st, tasks: map[lease.TaskID]*held{},
		ledger: map[ledgerKey]fresh[lease.Committed]{}, keys: map[keyKey]fresh[keyTask]{}, kept: map[ledgerKey]fresh[*lease.Result]{},
	}
}

// find returns what is held of a task, or nil.
func (w *workset) find(id lease.TaskID) *held {
	if h := w.latest; h != nil && h.id == id {
		return h
	}
	h := w.tasks[id]
	if h != nil {
		w.latest = h
	}
	return h
}

// hold begins to hold a task.
func (w *workset) hold(id lease.TaskID, t *lease.Task) *held {
	h := &held{id: id, task: t}
	w.tasks[id], w.latest = h, h
	return h
}

// task returns the newest version, or nil.
func (w *workset) task(id lease.TaskID) *lease.Task {
	if h := w.find(id); h != nil {
		return h.task
	}
	var t *lease.Task
	w.read(func(r store.Reader) (err error) {
		t, err = records.Resting(r, id) // every task with a lease is held
		return err
	})
	return t
}

// leased returns the newest version of a task that has a lease; nil where it has none.
func (w *workset) leased(id lease.TaskID) *lease.Task {
	if h := w.find(id); h != nil && h.task != nil && h.task.Lease != nil {
		return h.task
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
	if f, ok := w.kept[ledgerKey{id, attempt}]; ok {
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
	if f, found := w.keys[keyKey{space, key}]; found {
		return f.value.task, f.value.digest, f.value.task != lease.TaskID{}
	}
	w.read(func(r store.Reader) (err error) {
		id, d, ok, err = records.Key(r, space, key)
		return err
	})
	return id, d, ok
}

// read looks at the store from the loop. A store that cannot be read, or whose records fail their checksum, must not be
// decided upon: corrupt is caught by the loop, which stops.
func (w *workset) read(fn func(store.Reader) error) {
	if err := w.st.View(fn); err != nil {
		panic(corrupt{err})
	}
}

type corrupt struct{ err error }

// expect takes a waiting task into memory, as it is in the store, for its coming grant.
func (w *workset) expect(t *lease.Task) {
	if w.tasks[t.ID] == nil && w.room() > 0 {
		w.hold(t.ID, t)
	}
}

// room is how many more waiting tasks may be kept in memory.
func (w *workset) room() int { return max(maxIdle-(len(w.tasks)-w.live), 0) }

// put takes a change into a batch, and keeps the version of the task that it makes.
func (w *workset) put(b *batch, c *lease.Change) {
	id, spec := about(c)
	var h *held
	if c.Old != nil { // nobody has heard of a new one
		h = w.find(id)
	}
	if h == nil {
		h = w.hold(id, nil)
	}
	b.add(h, c)
	h.task = c.New
	batch := b.number
	if c.Old != nil && c.Old.Lease != nil {
		w.live--
	}
	if c.New != nil && c.New.Lease != nil {
		w.live++
	}
	for _, done := range c.Ledger {
		w.ledger[ledgerKey{id, done.Attempt}] = fresh[lease.Committed]{done, batch}
	}
	for _, k := range c.Kept {
		w.kept[ledgerKey{id, k.Attempt}] = fresh[*lease.Result]{k.Result, batch}
	}
	switch {
	case spec.IdempotencyKey == "":
	case c.Old == nil:
		w.keys[keyKey{id.Space, spec.IdempotencyKey}] = fresh[keyTask]{keyTask{id, c.Key}, batch}
	case c.New == nil:
		w.keys[keyKey{id.Space, spec.IdempotencyKey}] = fresh[keyTask]{keyTask{}, batch}
	}
}

// durable lets go of what a committed batch no longer needs in memory.
func (w *workset) durable(batch uint64, c *change) {
	if h := c.held; h.batch == batch {
		h.change = nil
		w.settle(h)
	}
	for _, done := range c.Ledger {
		drop(w.ledger, ledgerKey{c.id, done.Attempt}, batch)
	}
	for _, k := range c.Kept {
		drop(w.kept, ledgerKey{c.id, k.Attempt}, batch)
	}
	if c.key != "" {
		drop(w.keys, keyKey{c.id.Space, c.key}, batch)
	}
}

func (w *workset) settle(h *held) {
	switch t := h.task; {
	case t != nil && t.Lease != nil:
	case t != nil && t.Rest == lease.Ready && !h.far && len(w.tasks)-w.live <= maxIdle:
		if len(t.Spec.Payload) > records.SmallPayload {
			h.task = withoutPayload(t)
		}
	default:
		delete(w.tasks, h.id)
		if w.latest == h {
			w.latest = nil
		}
	}
}

// withoutPayload is t with its payload on disk only.
func withoutPayload(t *lease.Task) *lease.Task {
	spec := *t.Spec
	spec.Payload = nil
	copied := *t
	copied.Spec = &spec
	return &copied
}

func drop[K comparable, V any](m map[K]fresh[V], k K, batch uint64) {
	if f, ok := m[k]; ok && f.batch == batch {
		delete(m, k)
	}
}

// about tells which task a change is about.
func about(c *lease.Change) (lease.TaskID, *lease.Spec) {
	t := c.New
	if t == nil {
		t = c.Old
	}
	return t.ID, t.Spec
}
