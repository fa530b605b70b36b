package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"slices"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// load reads everything that the engine keeps in memory. Tasks at rest stay on disk.
func (e *Engine) load() error {
	err := e.st.View(func(r store.Reader) error {
		for _, part := range []func(store.Reader) error{
			e.loadClock, e.loadKeys, e.loadSpaces, e.loadSettings, e.loadQueues, e.loadLines, e.loadParked,
			e.loadLeases,
		} {
			if err := part(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.forgetQueues()
	e.invalidate()
	return nil
}

// loadClock starts the serving clock where it was saved last, and reads timers.
func (e *Engine) loadClock(r store.Reader) error {
	serving, err := records.ServingClock(r)
	if err != nil {
		return err
	}
	e.clock = newClock(serving, e.cfg.Wall)
	e.clocks.set(e.clock, serving)
	return e.timers.load(r, e.cfg.TimersSwept)
}

func (e *Engine) loadKeys(r store.Reader) error { return e.set.loadKeys(r, e.cfg.KeySegment) }

// identify reads the store's epoch and key, and makes them at the first start. InvalidateLeases and
// RestoredStore begin a new epoch, which ends every older lease (A9, A11).
func identify(st store.Store, recovery Recovery) (id records.Identity, err error) {
	var found bool
	var b store.Batch
	now := lease.WallOf(time.Now())
	err = st.View(func(r store.Reader) (err error) {
		if err = requireMeta(r); err != nil {
			return err
		}
		if id, found, err = records.ReadIdentity(r); err != nil || recovery != RestoredStore {
			return err
		}
		id.Epoch, err = records.MakeIndependent(&b, r, now)
		id.KnownFrom = id.Epoch
		return err
	})
	switch {
	case err != nil:
		return id, err
	case found && recovery == KeepLeases:
		return id, nil
	case !found:
		id = records.Identity{Epoch: 1, KnownFrom: 1, Key: make([]byte, 32)}
		_, _ = rand.Read(id.Key) // never fails
		records.PutIdentity(&b, id)
	case recovery == InvalidateLeases:
		id.Epoch++
		records.PutIdentity(&b, id)
	default: // RestoredStore: b has what MakeIndependent put into it
		time.Sleep(lease.UntilNextEpoch(now))
	}
	return id, st.Commit(context.Background(), &b)
}

// requireMeta returns a *store.CorruptError if a store that was served has lost its identity or its
// clock. With a new key, no lease would be known any more; with a clock that begins at 0, no lease
// would end and no retry begin for as long as the coordinator has served.
func requireMeta(r store.Reader) error {
	served := false
	err := r.Scan(store.Space, nil, nil, func(_, _ []byte) bool { served = true; return false })
	if err != nil || !served {
		return err
	}
	for _, key := range []string{store.MetaIdentity, store.MetaClock} {
		if r.Get(store.Meta, []byte(key)) == nil {
			return store.Corrupt(store.Meta, []byte(key), "there are workspaces, but not this record")
		}
	}
	return nil
}

func (e *Engine) loadSpaces(r store.Reader) error {
	return records.Spaces(r, func(s records.Space) error {
		e.spaces.load(s)
		return nil
	})
}

// loadQueue finds or makes a queue, whose workspace has that number.
func (e *Engine) loadQueue(number uint32, name string) (*queue, error) {
	s := e.spaces.numbered(number)
	if s == nil {
		return nil, store.Corrupt(store.Queue, store.AppendNameKey(nil, number, name), "its workspace does not exist")
	}
	return s.queue(name), nil
}

func (e *Engine) loadSettings(r store.Reader) error {
	return records.Settings(r, func(number uint32, name string, s *lease.Settings) error {
		q, err := e.loadQueue(number, name)
		if err != nil {
			return err
		}
		q.settings = s
		q.space.tenant.settings += settingsOf(s)
		return nil
	})
}

func (e *Engine) loadQueues(r store.Reader) error {
	return records.Queues(r, func(q records.Queue) error {
		made, err := e.loadQueue(q.Space, q.Name)
		if err != nil {
			return err
		}
		made.createdAt = q.CreatedAt
		made.counts = [...]uint64{ // what is leased is counted from the leases
			countReady: q.Ready, countScheduled: q.Scheduled,
			countCompleted: q.Completed, countFailed: q.Failed, countCancelled: q.Cancelled, countOlder: q.Older,
		}
		made.parked = q.Parked
		e.spaces.addLoaded(made)
		e.loadBucket(made, q.Bucket)
		return nil
	})
}

// forgetQueues forgets the queues that became unused when the coordinator stopped: their workers
// may not come back.
func (e *Engine) forgetQueues() {
	for s := range e.spaces.each() {
		for _, q := range s.queues {
			e.batch().forgetIfUnused(q)
		}
	}
}

// loadBucket sets how far the rate limit of a queue is used up. An earlier format did not store
// that: then the limit counts as used up. The first batch stores this state, because otherwise the
// next start would begin the wait again (T13).
func (e *Engine) loadBucket(q *queue, stored *lease.Bucket) {
	switch {
	case stored != nil:
		q.bucket = *stored
	case q.settings.Rate.PerSecond != 0:
		q.bucket = lease.UsedUp(e.now().Serving)
		e.batch().touchQueue(q)
	}
}

// loadLines finds the lines in which tasks wait. It does not read the tasks: the first use of each
// head does. The bound of an unread line is right before its first task, so that lines which are
// not read yet are in order, and a grant reads only the line whose turn it is.
func (e *Engine) loadLines(r store.Reader) error {
	var found []*line
	err := records.WaitingLines(r, func(first store.ReadyKey, kind lease.Line) error {
		q, err := e.loadQueue(first.Space, kind.Queue)
		if err != nil {
			return err
		}
		l := q.line(kind)
		l.head.unread(place{first.Priority, first.Place, first.Seq - 1})
		found = append(found, l)
		return nil
	})
	if err != nil {
		return err
	}
	// see waitingLines
	slices.SortFunc(found, func(a, b *line) int { return cmp.Compare(a.head.bound.place, b.head.bound.place) })
	for _, l := range found {
		e.lines.enlist(l)
	}
	return nil
}

// beforeAll is a place before those of all tasks.
var beforeAll = place{priority: math.MaxInt32}

// loadParked finds the concurrency keys under which tasks are parked. It does not read the tasks.
func (e *Engine) loadParked(r store.Reader) error {
	return records.ParkedLines(r, func(number uint32, key string, kind lease.Line) error {
		q, err := e.loadQueue(number, kind.Queue)
		if err != nil {
			return err
		}
		k := q.space.concurrencyKey(key)
		e.parking.in(k, kind).head.unread(beforeAll)
		e.parking.mayHaveRoom(k)
		return nil
	})
}

// loadLeases adds the tasks with live leases to the working set. Their sessions are gone, so the
// leases become orphans of the instances that held them.
func (e *Engine) loadLeases(r store.Reader) error {
	return records.LeasedTasks(r, func(t *lease.Task) error {
		q, err := e.loadQueue(t.ID.Space, t.Spec.Queue)
		if err != nil {
			return err
		}
		e.set.addLeased(t)
		e.requests.addLease(t)
		e.spaces.addLeased(q)
		if key := t.Spec.ConcurrencyKey; key != "" {
			q.space.concurrencyKey(key).hold(holderOf(t))
		}
		if t.Spec.Affinity != nil {
			e.bindings.bind(q.space, t)
		}
		if s := t.Lease.Session; s != "" {
			e.sessions.addOrphan(s, t.ID, t.Lease.Attempt)
		} else {
			e.workers.addLease(callerOf(t))
		}
		e.timers.add(t)
		return nil
	})
}

// invalidate ends the leases of an older epoch; the first batch makes that durable. If a crash
// comes before that, the next start finds the leases again. No report under them is committed in
// the meantime, because a report is checked for its epoch first (V7).
func (e *Engine) invalidate() {
	for id, t := range e.set.leasedTasks() {
		if l := t.Lease; l.Epoch != e.rules.Authority.Epoch {
			e.step(lease.Requeue{
				Task: id, Attempt: l.Attempt, Cause: lease.CoordinatorRecovered,
				Detail: "the coordinator started in a new epoch",
			})
			e.invalidated++
		}
	}
}
