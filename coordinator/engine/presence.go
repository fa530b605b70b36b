package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// workerKey names a worker.
type workerKey struct{ tenant, worker string }

// presence is what is known of a worker while it is there, or while tasks wait that are pinned to it (W12).
type presence struct {
	takers map[*taker]struct{}
	pinned map[*line]struct{} // in which tasks wait for it
	end    *alarm             // of the wait, while it is not there
}

func (e *Engine) presence(k workerKey) *presence {
	p := e.workers[k]
	if p == nil {
		p = &presence{takers: map[*taker]struct{}{}, pinned: map[*line]struct{}{}}
		e.workers[k] = p
	}
	return p
}

func (t *taker) key() workerKey { return workerKey{t.wants.Space.Tenant, t.wants.Worker} }

// arrive takes note that a worker is there.
func (e *Engine) arrive(t *taker) {
	p := e.presence(t.key())
	p.takers[t] = struct{}{}
	e.silence(p.end)
	p.end = nil
}

// vanish takes note that a taker is there no more.
func (e *Engine) vanish(t *taker) {
	t.left = true
	p := e.workers[t.key()]
	if p == nil {
		return
	}
	delete(p.takers, t)
	e.wait(t.key(), p)
}

// wait begins to wait for a worker for which tasks wait, and forgets one of whom nothing is wanted.
func (e *Engine) wait(k workerKey, p *presence) {
	switch {
	case len(p.takers) > 0:
	case len(p.pinned) == 0:
		e.silence(p.end)
		delete(e.workers, k)
	case p.end == nil:
		p.end = e.alarm(e.now.Serving.Add(e.cfg.ResourceWait), func() { e.loseResources(k) })
	}
}

// await takes note that tasks of a line wait, for a worker or for a key to be bound or free.
func (e *Engine) await(l *line) {
	switch p := &l.placement; {
	case p.Worker != "":
		k := workerKey{l.queue.space.name.Tenant, p.Worker}
		there := e.presence(k)
		there.pinned[l] = struct{}{}
		e.wait(k, there)
	case p.Affinity != "":
		s := l.queue.space
		if s.kin[p.Affinity] == nil {
			s.kin[p.Affinity] = map[*line]struct{}{}
		}
		s.kin[p.Affinity][l] = struct{}{}
	}
}

// unawait is the opposite.
func (e *Engine) unawait(l *line) {
	switch p := &l.placement; {
	case p.Worker != "":
		k := workerKey{l.queue.space.name.Tenant, p.Worker}
		there := e.workers[k]
		delete(there.pinned, l)
		e.wait(k, there)
	case p.Affinity != "":
		s := l.queue.space
		if delete(s.kin[p.Affinity], l); len(s.kin[p.Affinity]) == 0 {
			delete(s.kin, p.Affinity)
		}
	}
}

// lossesPerRound is how many tasks are given up before others' commands have their turn.
const lossesPerRound = 200

// loseResources gives up the tasks that wait for a worker that has been gone for too long.
func (e *Engine) loseResources(k workerKey) {
	p := e.workers[k]
	p.end = nil
	n := 0
	for l := range p.pinned {
		for ; n < lossesPerRound && l.in != nil; n++ {
			e.loseFirst(l, k.worker)
		}
	}
	if len(p.pinned) > 0 { // none joins them with a fresh wait
		p.end = e.alarm(e.now.Serving, func() { e.loseResources(k) })
	}
}

func (e *Engine) loseFirst(l *line, worker string) {
	if l.head.dry() {
		e.refillLine(l)
	}
	if p, ok := l.head.first(); ok {
		e.step(e.now, lease.LoseResource{
			Task: lease.TaskID{Space: l.queue.space.number, Seq: p.seq}, Worker: worker, After: e.cfg.ResourceWait,
		})
		l.head.remove(p) // also where an index entry has no task, which must not stop the line
	}
	if l.in != nil {
		e.settle(l)
	}
}

// hasRoom reports whether a worker would take a task of a pool now.
func (e *Engine) hasRoom(worker string, p *pool) bool {
	there := e.workers[workerKey{p.queue.space.name.Tenant, worker}]
	if there == nil {
		return false
	}
	for t := range there.takers {
		if t.free() > 0 && t.attends(p.queue) && t.takes(p.typ) && t.meets(p) && e.holds(p, t) {
			return true
		}
	}
	return false
}

// holds reports whether a pool has a task that fits into the room of a taker, as far as its tasks are known in memory.
func (e *Engine) holds(p *pool, t *taker) (found bool) {
	if !t.wants.selective() {
		return true
	}
	p.turns.Scan(func(f *flow) bool {
		f.pools[p].lines.Scan(func(l *line) bool {
			_, found = e.pick(l, t)
			return !found
		})
		return !found
	})
	return found
}

func (t *taker) attends(q *queue) bool { return slices.Contains(t.queues, q) }

// loosen lets others look at the tasks for which a worker goes first, after a grant that has taken of its room. Nothing else that takes room away
// needs this: where a worker had room for a task, it got it.
func (e *Engine) loosen(t *taker) {
	for _, q := range t.queues {
		if len(q.pools.loose[t.wants.Worker]) > 0 {
			e.stir(q)
		}
	}
}
