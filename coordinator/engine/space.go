package engine

import (
	"fmt"
	"sync"

	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// space is a workspace of a tenant: its sequence and its queues.
type space struct {
	name          Space
	tenant        *TenantCounts
	number        uint32 // 0 until its first submit or queue update
	nextSeq       uint64
	lost          span   // sequences that the newest restore left out
	batch         uint64 // number of the last batch that writes its record
	queues        map[string]*queue
	byQueueName   *btree.BTreeG[*queue]         // the same queues, in the order of their names
	keys          map[string]*concurrencyKey    // concurrency keys that are held or waited for
	bindings      map[string]*binding           // affinity keys that have a worker
	affinityLines map[string]map[*line]struct{} // lines in which tasks wait, by affinity key
}

// Sequences are the sequences that the tasks and events of a space may have.
type Sequences struct {
	last uint64
	lost span
}

// Last returns the newest sequence.
func (s Sequences) Last() uint64 { return s.last }

// Lost reports whether a restore left out this sequence, so that no task or event has it. A client can only know such a sequence from the time
// after the backup, which the restore has lost.
func (s Sequences) Lost(seq uint64) bool { return s.lost.from <= seq && seq < s.lost.to }

// span is a range of sequences, from the first to before the end.
type span struct{ from, to uint64 }

func newSpace(name Space, tenant *TenantCounts, number uint32, nextSeq uint64, lost span) *space {
	return &space{
		name: name, tenant: tenant, number: number, nextSeq: nextSeq, lost: lost, queues: map[string]*queue{}, keys: map[string]*concurrencyKey{},
		bindings: map[string]*binding{}, affinityLines: map[string]map[*line]struct{}{},
		byQueueName: newTree(func(a, b *queue) bool { return a.name < b.name }),
	}
}

// add adds a new queue to its space, and drop removes it.
func (s *space) add(q *queue) {
	s.queues[q.name] = q
	s.byQueueName.Set(q)
}

func (s *space) drop(q *queue) {
	delete(s.queues, q.name)
	s.byQueueName.Delete(q)
}

// countsOf returns the counts of a tenant, to be updated.
func (e *Engine) countsOf(tenant string) *TenantCounts {
	n := e.tenants[tenant]
	if n == nil {
		n = &TenantCounts{}
		e.tenants[tenant] = n
	}
	return n
}

// spaceOf finds a space or makes it in memory, so that takers can wait in it. A new space has no number and no record in the store; see assignNumber.
func (e *Engine) spaceOf(name Space) *space {
	s := e.byName[name]
	if s == nil {
		first := lease.FirstSeq(e.Epoch(), 1)
		s = newSpace(name, e.countsOf(name.Tenant), 0, first, span{1, first})
		e.byName[name] = s
	}
	return s
}

// forgetUnused removes a space from memory if it has no number and nobody waits in it, so that unused names do not fill the memory.
func (e *Engine) forgetUnused(s *space) {
	if s.number == 0 && len(s.queues) == 0 {
		delete(e.byName, s.name)
	}
}

// maxSpaces is how many workspaces a tenant may have. They are never forgotten, so without a limit a tenant could use up the memory, at each start again, and
// the numbers, which all tenants share.
const maxSpaces = 100_000

// assignNumber gives a space its number, if it has none yet. Add the number to the directory when it is certain that the space keeps it.
func (e *Engine) assignNumber(s *space) error {
	if s.number != 0 {
		return nil
	}
	tooMany := func(whose string, most int) error {
		return &lease.FieldError{Field: "workspace_id", Problem: fmt.Sprintf("is new, and the limit of %d workspaces of %s is reached", most, whose)}
	}
	switch {
	case s.tenant.spaces >= maxSpaces:
		return tooMany("a tenant", maxSpaces)
	case e.lastSpace == lease.MaxSpace:
		return tooMany("all tenants", lease.MaxSpace)
	}
	e.lastSpace++
	s.tenant.spaces++
	s.number = e.lastSpace
	e.spaces[s.number] = s
	return nil
}

// withdrawNumber undoes the last assignNumber. The submit for which the number was assigned was refused, but may have taken sequences before that.
func (e *Engine) withdrawNumber(s *space) {
	delete(e.spaces, s.number)
	e.lastSpace--
	s.tenant.spaces--
	s.number = 0
	e.batch().leaveSpace(s)
}

// directory finds the number of a space. The edge may read it without the loop.
type directory struct {
	mu     sync.RWMutex
	byName map[Space]uint32
}

func (d *directory) lookup(s Space) (uint32, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	n, ok := d.byName[s]
	return n, ok
}

func (d *directory) add(s Space, n uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byName[s] = n
}
