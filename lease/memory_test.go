package lease_test

import (
	"maps"

	"github.com/lessor-dev/lessor/lease"
)

// memory is a lease.View of plain maps. It stores what a caller of the rules has to store. No value
// is modified after it was put into a map, so a copy of the maps is a backup.
type memory struct {
	tasks  map[lease.TaskID]*lease.Task
	ledger map[attemptKey]*lease.Committed
	forget map[lease.TaskID]lease.Instant
	keys   map[specKey]keyEntry
	seqs   map[uint32]uint64
	kept   map[attemptKey]*lease.Result

	settings map[specKey]*lease.Settings // by queue; backups share this map
	bucket   lease.Bucket                // of the one queue of a transcript; host keeps one for each queue
}

type attemptKey struct {
	task    lease.TaskID
	attempt uint32
}

type specKey struct {
	space uint32
	key   string
}

type keyEntry struct {
	task   lease.TaskID
	digest lease.Digest
}

func newMemory() *memory {
	return &memory{
		tasks: map[lease.TaskID]*lease.Task{}, ledger: map[attemptKey]*lease.Committed{},
		forget: map[lease.TaskID]lease.Instant{}, keys: map[specKey]keyEntry{}, seqs: map[uint32]uint64{},
		kept: map[attemptKey]*lease.Result{}, settings: map[specKey]*lease.Settings{},
	}
}

func (m *memory) backup() *memory {
	return &memory{
		tasks: maps.Clone(m.tasks), ledger: maps.Clone(m.ledger),
		forget: maps.Clone(m.forget), keys: maps.Clone(m.keys), seqs: maps.Clone(m.seqs),
		kept: maps.Clone(m.kept), settings: m.settings, bucket: m.bucket,
	}
}

func (m *memory) Task(id lease.TaskID) *lease.Task { return m.tasks[id] }

func (m *memory) Payload(id lease.TaskID) []byte { return m.tasks[id].Spec.Payload }

func (m *memory) Committed(id lease.TaskID, attempt uint32) *lease.Committed {
	return m.ledger[attemptKey{id, attempt}]
}

func (m *memory) Key(space uint32, key string) (lease.TaskID, lease.Digest, bool) {
	k, ok := m.keys[specKey{space, key}]
	return k.task, k.digest, ok
}

// Queue counts the live leases of the queue by looking at every task.
func (m *memory) Queue(space uint32, name string) lease.Queue {
	q := lease.Queue{Settings: m.settings[specKey{space, name}], Bucket: m.bucket}
	for id, t := range m.tasks {
		if id.Space == space && t.Spec.Queue == name && t.Lease != nil {
			q.Leased++
		}
	}
	return q
}

// Holders counts the live leases with the key by looking at every task.
func (m *memory) Holders(space uint32, key string) (h lease.Holders) {
	for id, t := range m.tasks {
		if id.Space == space && t.Spec.ConcurrencyKey == key && t.Lease != nil {
			h.Count++
			if h.Limit == 0 || t.Spec.ConcurrencyLimit < h.Limit {
				h.Limit = t.Spec.ConcurrencyLimit
			}
		}
	}
	return h
}

func (m *memory) Discarded(id lease.TaskID, attempt uint32) *lease.Result {
	return m.kept[attemptKey{id, attempt}]
}

func (m *memory) NextSeq(space uint32) uint64 {
	m.seqs[space]++
	return m.seqs[space]
}

// apply stores the changes of a step, as lease/doc.go asks of the caller.
func (m *memory) apply(changes []lease.Change) {
	for i := range changes {
		c := &changes[i]
		id := taskOf(c)
		for j := range c.Ledger {
			m.ledger[attemptKey{id, c.Ledger[j].Attempt}] = &c.Ledger[j]
		}
		for _, k := range c.Kept {
			m.kept[attemptKey{id, k.Attempt}] = k.Result
		}
		for _, attempt := range c.Dropped {
			if !c.New.KeepsResultOf(attempt) {
				delete(m.kept, attemptKey{id, attempt})
			}
		}
		switch {
		case c.New == nil:
			m.remove(c.Old)
			m.forget[id] = c.ForgetAt
		case c.Old == nil && c.New.Spec.IdempotencyKey != "":
			m.keys[specKey{id.Space, c.New.Spec.IdempotencyKey}] = keyEntry{id, c.Key}
			m.tasks[id] = c.New
		default:
			m.tasks[id] = c.New
		}
	}
}

func (m *memory) remove(t *lease.Task) {
	delete(m.tasks, t.ID)
	for _, d := range t.Discarded {
		delete(m.kept, attemptKey{t.ID, d.Attempt})
	}
	key := specKey{t.ID.Space, t.Spec.IdempotencyKey}
	if m.keys[key].task == t.ID {
		delete(m.keys, key)
	}
}

// expireLedgers forgets the committed reports of deleted tasks whose ForgetAt has passed (A10).
func (m *memory) expireLedgers(now lease.Instant) {
	for id, at := range m.forget {
		if at > now {
			continue
		}
		delete(m.forget, id)
		maps.DeleteFunc(m.ledger, func(k attemptKey, _ *lease.Committed) bool { return k.task == id })
	}
}

func taskOf(c *lease.Change) lease.TaskID {
	if c.New != nil {
		return c.New.ID
	}
	return c.Old.ID
}
