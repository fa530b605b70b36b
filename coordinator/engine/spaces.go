package engine

import (
	"fmt"
	"iter"
	"maps"
	"sync"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
)

// spaces has all workspaces, by number and by name, and counts what is in them: the tasks of all,
// and what each tenant has. It belongs to the loop.
type spaces struct {
	byNumber map[uint32]*space
	byName   map[Space]*space                  // also those without a number
	last     uint32                            // the highest number
	tenants  ordered.Map[string, *tenantTally] // by name; the spaces of a tenant have it too
	total    tally                             // of the tasks of all queues
	dir      *directory
	epoch    uint32 // of the store, in which new spaces begin
}

func newSpaces(d *directory, epoch uint32) *spaces {
	return &spaces{
		byNumber: map[uint32]*space{}, byName: map[Space]*space{},
		tenants: ordered.NewMap[string, *tenantTally](), dir: d, epoch: epoch,
	}
}

// load adds a space that the store has.
func (all *spaces) load(s records.Space) {
	name := Space{Tenant: s.Tenant, Workspace: s.Workspace}
	made := newSpace(name, all.tallyOf(name.Tenant), s.Number, s.NextSeq, span{s.LostFrom, s.LostTo})
	made.countedFrom = s.CountedFrom
	all.byNumber[s.Number], all.byName[name] = made, made
	made.tenant.spaces++
	all.dir.add(name, s.Number)
	all.last = max(all.last, s.Number)
}

// numbered finds a space by its number, of finds that of a task, and named finds one by its name.
// They return nil if there is none.
func (all *spaces) numbered(number uint32) *space { return all.byNumber[number] }
func (all *spaces) of(id lease.TaskID) *space     { return all.byNumber[id.Space] }
func (all *spaces) named(name Space) *space       { return all.byName[name] }

// each returns the spaces that have a number.
func (all *spaces) each() iter.Seq[*space] { return maps.Values(all.byNumber) }

// queueOf finds the queue of a task.
func (all *spaces) queueOf(c *lease.Change) *queue {
	id, spec := c.Subject()
	return all.of(id).queue(spec.Queue)
}

// obtain finds a space or makes it in memory, so that takers can wait in it. A new space has no
// number and no record in the store; see assignNumber.
func (all *spaces) obtain(name Space) *space {
	s := all.byName[name]
	if s == nil {
		first := lease.FirstSeq(all.epoch, 1)
		s = newSpace(name, all.tallyOf(name.Tenant), 0, first, span{1, first})
		all.byName[name] = s
	}
	return s
}

// forgetUnused removes a space from memory if it has no number and nobody waits in it, so that
// unused names do not fill the memory.
func (all *spaces) forgetUnused(s *space) {
	if s.number == 0 && len(s.queues) == 0 {
		delete(all.byName, s.name)
	}
}

// maxSpaces is how many workspaces a tenant may have. They are never forgotten, so without a limit
// a tenant could use up the memory, at each start again, and the numbers, which all tenants share.
const maxSpaces = 100_000

// assignNumber gives a space its number, if it has none yet. It is followed by announce when it is
// certain that the space keeps the number, or by withdrawNumber.
func (all *spaces) assignNumber(s *space) error {
	if s.number != 0 {
		return nil
	}
	tooMany := func(whose string, most int) error {
		return &lease.FieldError{
			Field:   "workspace_id",
			Problem: fmt.Sprintf("is new, and the limit of %d workspaces of %s is reached", most, whose),
		}
	}
	switch {
	case s.tenant.spaces >= maxSpaces:
		return tooMany("a tenant", maxSpaces)
	case all.last == lease.MaxSpace:
		return tooMany("all tenants", lease.MaxSpace)
	}
	all.last++
	s.tenant.spaces++
	s.number = all.last
	all.byNumber[s.number] = s
	return nil
}

// announce adds the number of a space to the directory.
func (all *spaces) announce(s *space) { all.dir.add(s.name, s.number) }

// withdrawNumber undoes the last assignNumber.
func (all *spaces) withdrawNumber(s *space) {
	delete(all.byNumber, s.number)
	all.last--
	s.tenant.spaces--
	s.number = 0
}

// recount updates the counts of a queue, of its tenant and of all after a change of a task; before
// and after are how its two versions are counted.
func (all *spaces) recount(q *queue, c *lease.Change, before, after int) {
	q.space.tenant.recount(c, before, after)
	q.recount(c, before, after)
	all.total.recount(c, before, after)
}

// addLoaded counts the tasks of a queue that was loaded, except those that are leased.
func (all *spaces) addLoaded(q *queue) {
	all.total.add(q.tally)
	q.space.tenant.add(q.tally)
}

// addLeased counts a leased task of a queue that was loaded.
func (all *spaces) addLeased(q *queue) {
	q.counts[countLeased]++
	all.total.counts[countLeased]++
	q.space.tenant.counts[countLeased]++
}

// counts returns how many tasks there are.
func (all *spaces) counts() Counts {
	t := &all.total
	return Counts{
		Ready: t.counts[countReady] - t.parked, Parked: t.parked,
		Scheduled: t.counts[countScheduled], Leased: t.counts[countLeased],
	}
}

// waiting returns how many tasks are READY or SCHEDULED.
func (all *spaces) waiting() uint64 {
	return all.total.counts[countScheduled] + all.total.counts[countReady]
}

// tenant returns what a tenant has; nil if it has no space.
func (all *spaces) tenant(name string) *tenantTally {
	n, _ := all.tenants.Get(name)
	return n
}

func (all *spaces) tallyOf(tenant string) *tenantTally {
	n := all.tenant(tenant)
	if n == nil {
		n = &tenantTally{}
		all.tenants.Set(tenant, n)
	}
	return n
}

// directory finds the number of a space. The edge may read it without the loop.
type directory struct {
	mu     sync.RWMutex
	byName map[Space]uint32
}

func newDirectory() *directory { return &directory{byName: map[Space]uint32{}} }

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
