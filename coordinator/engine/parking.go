package engine

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// parkedHead is how many parked tasks of a line are kept in memory.
var parkedHead = 256

// parkedLine has the tasks of a line that are parked under a concurrency key.
type parkedLine struct {
	key  *concurrencyKey
	line lease.Line
	head *head[place]
}

// isDropped reports whether parking has forgotten the line, because none of its tasks was parked
// any more.
func (l *parkedLine) isDropped() bool { return l.key.parked[l.line] != l }

// pinnedTo returns the worker to which the tasks of the line are pinned; its name is empty if they
// are not.
func (l *parkedLine) pinnedTo() workerKey {
	return workerKey{l.key.space.name.Tenant, l.line.Class.Placement().Worker}
}

// parking has the READY tasks for whose concurrency key there was no room: they are parked under
// the key, line by line (see concurrencyKey). It knows which keys may have room again. It belongs
// to the loop.
type parking struct {
	roomy     map[*concurrencyKey]struct{} // keys that may have room
	mostRoomy int                          // see shrunk

	spaces   *spaces
	set      *workset
	pipeline *pipeline
	workers  *workers
}

func newParking(all *spaces, w *workset, p *pipeline, ws *workers) *parking {
	return &parking{roomy: map[*concurrencyKey]struct{}{}, spaces: all, set: w, pipeline: p, workers: ws}
}

// isFull reports whether the concurrency key of a task has no room, so that no worker can be
// granted the task now.
func (pk *parking) isFull(t *lease.Task) bool {
	k := pk.spaces.of(t.ID).keys[t.Spec.ConcurrencyKey]
	return k != nil && !k.state().Room(t.Spec.ConcurrencyLimit)
}

// in finds the tasks of a line that are parked under the key, or makes an empty list of them.
func (pk *parking) in(k *concurrencyKey, line lease.Line) *parkedLine {
	l := k.parked[line]
	if l == nil {
		l = &parkedLine{key: k, line: line, head: newHead(parkedHead, placeLess)}
		k.park(l)
		pk.workers.trackParked(l)
	}
	return l
}

// drop forgets a line of which no task is parked under the key any more.
func (pk *parking) drop(l *parkedLine) {
	if !l.isDropped() {
		l.key.unpark(l)
		pk.workers.untrackParked(l)
	}
}

// update updates the concurrency key of a task after a change of the task. If the change may have
// made room under the key, or if a READY task of the key is no longer READY, it calls mayHaveRoom.
func (pk *parking) update(c *lease.Change) {
	id, spec := c.Subject()
	if spec.ConcurrencyKey == "" {
		return
	}
	k := pk.spaces.of(id).concurrencyKey(spec.ConcurrencyKey)
	switch was, is := isLeased(c.Old), isLeased(c.New); {
	case is && !was:
		k.hold(holderOf(c.New))
	case was && !is:
		k.release(holderOf(c.Old))
	}
	switch was, is := isParked(c.Old), isParked(c.New); {
	case was && !is:
		l := pk.in(k, c.Old.Line())
		l.head.changedIn = pk.pipeline.current().number
		pk.remove(l, placeOf(c.Old))
	case is && !was:
		l := pk.in(k, c.New.Line())
		l.head.changedIn = pk.pipeline.current().number
		l.head.insert(placeOf(c.New))
	}
	if isLeased(c.Old) && !isLeased(c.New) || isReady(c.Old) && !isReady(c.New) || k.unused() {
		pk.mayHaveRoom(k)
	}
}

// mayHaveRoom makes unpark look at all lines that are parked under the key.
func (pk *parking) mayHaveRoom(k *concurrencyKey) {
	k.rota.begin()
	pk.roomy[k] = struct{}{}
}

// hasWork reports whether there are keys that may have room.
func (pk *parking) hasWork() bool { return len(pk.roomy) > 0 }

// toUnpark returns the keys that may have room.
func (pk *parking) toUnpark() map[*concurrencyKey]struct{} {
	pk.roomy = shrunk(pk.roomy, &pk.mostRoomy)
	return pk.roomy
}

// unparked is called when unpark no longer has to look at a key.
func (pk *parking) unparked(k *concurrencyKey) {
	k.rota.end()
	delete(pk.roomy, k)
	if k.unused() {
		delete(k.space.keys, k.key)
	}
}

// behind reports whether a task that is before this one in its line is parked under the same
// concurrency key.
func (pk *parking) behind(l *line, id lease.TaskID, p place) bool {
	if len(l.queue.space.keys) == 0 {
		return false
	}
	t := pk.set.task(id)
	if t == nil || t.Spec.ConcurrencyKey == "" {
		return false
	}
	k := l.queue.space.keys[t.Spec.ConcurrencyKey]
	if k == nil || k.parked[l.kind] == nil {
		return false
	}
	first, ok := pk.first(k.parked[l.kind])
	if !ok {
		pk.mayHaveRoom(k) // it may be needed no more
	}
	return ok && placeLess(first, p)
}

// first returns the place of the first task of a line that is parked under the key. If there is
// none any more, it forgets the line.
func (pk *parking) first(l *parkedLine) (p place, ok bool) {
	if l.head.dry() {
		pk.refill(l)
	}
	if p, ok = l.head.first(); !ok {
		pk.drop(l)
	}
	return p, ok
}

// remove removes a place from the parked tasks of a line, and forgets the line if that was the last
// one.
func (pk *parking) remove(l *parkedLine, p place) {
	if l.head.remove(p); l.head.empty() {
		pk.drop(l)
	}
}

// refill reads the next parked tasks of a line from the store.
func (pk *parking) refill(l *parkedLine) {
	pk.pipeline.flushTo(l.head.changedIn)
	var keys []place
	var more bool
	pk.set.read(func(r store.Reader) error {
		bound := l.head.bound
		after := store.ReadyKey{Priority: bound.priority, Place: bound.place, Seq: bound.seq}
		return records.Parked(r, l.key.space.number, l.key.key, l.line, after, func(p store.ReadyKey) bool {
			if more = len(keys) == parkedHead/2; more {
				return false
			}
			keys = append(keys, place{p.Priority, p.Place, p.Seq})
			return true
		})
	})
	l.head.refill(keys, more)
}
