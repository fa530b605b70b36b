package engine

import (
	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
)

// concurrencyKey is a concurrency key that some task holds or waits for (T11). It lists its live
// leases, instead of counting them, so that no count can leak. READY tasks for which the key had no
// room are parked under it, line by line, and come back one by one when it has room.
type concurrencyKey struct {
	space   *space
	key     string
	holders ordered.Set[holder] // the oldest first
	// limits is the number of holders that have each limit, in order: a producer may give each task
	// another limit.
	limits  ordered.Map[uint32, int]
	parked  map[lease.Line]*parkedLine
	queues  ordered.Map[string, int] // number of lines of each queue that are in parked
	blocker holder                   // by which the key is in space.blockers; zero if it is not
	rota    rota

	mostParked int // see shrunk
}

func newConcurrencyKey(s *space, key string) *concurrencyKey {
	return &concurrencyKey{
		space: s, key: key, holders: ordered.NewSet(holder.less), limits: ordered.NewMap[uint32, int](),
		parked: map[lease.Line]*parkedLine{}, queues: ordered.NewMap[string, int](), rota: rota{atOnce: 1},
	}
}

// holder is a live lease of a concurrency key.
type holder struct {
	since lease.Wall // when it was granted
	task  lease.TaskID
	limit uint32 // concurrency_limit of the task
}

// holderOf returns the lease of a task that is leased.
func holderOf(t *lease.Task) holder {
	return holder{t.Lease.GrantedAt, t.ID, t.Spec.ConcurrencyLimit}
}

func (h holder) less(other holder) bool {
	if h.since != other.since {
		return h.since < other.since
	}
	return h.task.Compare(other.task) < 0
}

func (k *concurrencyKey) state() lease.Holders {
	least, _, _ := k.limits.Min()
	return lease.Holders{Count: uint32(k.holders.Len()), Limit: least}
}

// unused reports whether nobody holds the key or waits for it.
func (k *concurrencyKey) unused() bool { return k.holders.Len() == 0 && len(k.parked) == 0 }

func (k *concurrencyKey) hold(h holder) {
	k.holders.Set(h)
	n, _ := k.limits.Get(h.limit)
	k.limits.Set(h.limit, n+1)
	k.updateBlocker()
}

func (k *concurrencyKey) release(h holder) {
	k.holders.Delete(h)
	if n, _ := k.limits.Get(h.limit); n > 1 {
		k.limits.Set(h.limit, n-1)
	} else {
		k.limits.Delete(h.limit)
	}
	k.updateBlocker()
}

// park adds a line of which tasks are parked, and unpark removes it.
func (k *concurrencyKey) park(l *parkedLine) {
	k.parked[l.line] = l
	n, _ := k.queues.Get(l.line.Queue)
	k.queues.Set(l.line.Queue, n+1)
	k.updateBlocker()
}

func (k *concurrencyKey) unpark(l *parkedLine) {
	delete(k.parked, l.line)
	k.parked = shrunk(k.parked, &k.mostParked)
	if n, _ := k.queues.Get(l.line.Queue); n > 1 {
		k.queues.Set(l.line.Queue, n-1)
	} else {
		k.queues.Delete(l.line.Queue)
	}
	k.updateBlocker()
}
