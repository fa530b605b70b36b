package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// concurrencyKey is a concurrency key that some task holds or waits for (T11). It lists its live leases by task, instead of counting them, so that
// no count can leak. READY tasks for which the key had no room are parked under it, line by line, and come back one by one when it has room.
type concurrencyKey struct {
	space   *space
	key     string
	holders map[lease.TaskID]uint32 // concurrency_limit of each holder
	limits  btree.Map[uint32, int]  // number of holders that have each limit, in order: a producer may give each task another limit
	parked  map[lease.Line]*head[place]
	rota    rota

	mostParked int // see shrunk
}

// parkedHead is how many parked tasks of a line are kept in memory.
var parkedHead = 256

func (k *concurrencyKey) state() lease.Holders {
	least, _, _ := k.limits.Min()
	return lease.Holders{Count: uint32(len(k.holders)), Limit: least}
}

// keyIsFull reports whether the concurrency key of a task has no room, so that no worker can be granted the task now.
func (e *Engine) keyIsFull(t *lease.Task) bool {
	k := e.spaces.of(t.ID).keys[t.Spec.ConcurrencyKey]
	return k != nil && !k.state().Room(t.Spec.ConcurrencyLimit)
}

func (k *concurrencyKey) hold(id lease.TaskID, limit uint32) {
	if _, held := k.holders[id]; !held {
		k.holders[id] = limit
		n, _ := k.limits.Get(limit)
		k.limits.Set(limit, n+1)
	}
}

func (k *concurrencyKey) release(id lease.TaskID) {
	limit, held := k.holders[id]
	if !held {
		return
	}
	delete(k.holders, id)
	if n, _ := k.limits.Get(limit); n > 1 {
		k.limits.Set(limit, n-1)
	} else {
		k.limits.Delete(limit)
	}
}

// parkedIn finds the tasks of a line that are parked under the key, or makes an empty list of them.
func (e *Engine) parkedIn(k *concurrencyKey, l lease.Line) *head[place] {
	h := k.parked[l]
	if h == nil {
		h = newHead(parkedHead, placeLess)
		k.parked[l] = h
		e.workers.trackParked(parkedLine{k, l})
	}
	return h
}

// dropParked forgets a line of which no task is parked under the key any more.
func (e *Engine) dropParked(k *concurrencyKey, l lease.Line) {
	if k.parked[l] != nil {
		delete(k.parked, l)
		k.parked = shrunk(k.parked, &k.mostParked)
		e.workers.untrackParked(parkedLine{k, l})
	}
}

// updateKey updates the concurrency key of a task after a change of the task. If the change may have made room under the key, or if a READY task of
// the key is no longer READY, updateKey adds the key to toUnpark: see unpark.
func (e *Engine) updateKey(c *lease.Change) {
	id, spec := c.Subject()
	if spec.ConcurrencyKey == "" {
		return
	}
	k := e.spaces.of(id).concurrencyKey(spec.ConcurrencyKey)
	if isLeased(c.New) {
		k.hold(id, spec.ConcurrencyLimit)
	} else {
		k.release(id)
	}
	switch was, is := isParked(c.Old), isParked(c.New); {
	case was && !is:
		h := e.parkedIn(k, c.Old.Line())
		h.batch = e.batch().number
		e.removeParked(k, c.Old.Line(), h, placeOf(c.Old))
	case is && !was:
		h := e.parkedIn(k, c.New.Line())
		h.batch = e.batch().number
		h.insert(placeOf(c.New))
	}
	if isLeased(c.Old) && !isLeased(c.New) || isReady(c.Old) && !isReady(c.New) || len(k.holders) == 0 && len(k.parked) == 0 {
		e.mayHaveRoom(k)
	}
}

// mayHaveRoom makes unpark look at all lines that are parked under the key.
func (e *Engine) mayHaveRoom(k *concurrencyKey) {
	k.rota.begin()
	e.toUnpark[k] = struct{}{}
}

// behind reports whether a task that is before this one in its line is parked under the same concurrency key.
func (e *Engine) behind(l *line, id lease.TaskID, p place) bool {
	if len(l.queue.space.keys) == 0 {
		return false
	}
	t := e.set.task(id)
	if t == nil || t.Spec.ConcurrencyKey == "" {
		return false
	}
	k := l.queue.space.keys[t.Spec.ConcurrencyKey]
	if k == nil || k.parked[l.kind] == nil {
		return false
	}
	first, ok := e.firstParked(k, l.kind, k.parked[l.kind])
	if !ok {
		e.mayHaveRoom(k) // it may be needed no more
	}
	return ok && placeLess(first, p)
}

// firstParked returns the place of the first task of a line that is parked under the key. If there is none any more, it forgets the line.
func (e *Engine) firstParked(k *concurrencyKey, line lease.Line, h *head[place]) (p place, ok bool) {
	if h.dry() {
		e.refillParked(k, line, h)
	}
	if p, ok = h.first(); !ok {
		e.dropParked(k, line)
	}
	return p, ok
}

// removeParked removes a place from the parked tasks of a line, and forgets the line if that was the last one.
func (e *Engine) removeParked(k *concurrencyKey, line lease.Line, h *head[place], p place) {
	if h.remove(p); h.empty() {
		e.dropParked(k, line)
	}
}

// refillParked reads the next parked tasks of a line from the store.
func (e *Engine) refillParked(k *concurrencyKey, line lease.Line, h *head[place]) {
	e.pipeline.flushTo(h.batch)
	var keys []place
	var more bool
	e.set.read(func(r store.Reader) error {
		after := store.ReadyKey{Priority: h.bound.priority, Place: h.bound.place, Seq: h.bound.seq}
		return records.Parked(r, k.space.number, k.key, line, after, func(p store.ReadyKey) bool {
			if more = len(keys) == parkedHead/2; more {
				return false
			}
			keys = append(keys, place{p.Priority, p.Place, p.Seq})
			return true
		})
	})
	h.refill(keys, more)
}
