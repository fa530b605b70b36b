package engine

import (
	"maps"
	"slices"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// lines keeps the lines of all queues: it moves tasks into and out of them, puts them into the
// pools where takers find them, and reads on where the head of a line becomes short
// (read_ahead.go). It belongs to the loop.
type lines struct {
	readings map[*readAhead]struct{} // under way
	readers  *sync.WaitGroup         // goroutines that read

	st       store.Store
	inbox    *inbox
	spaces   *spaces
	set      *workset
	pipeline *pipeline
	workers  *workers
	agenda   *agenda
	effort   *effort
}

// update moves the task into or out of its line.
func (ls *lines) update(c *lease.Change) {
	was, is := isInLine(c.Old), isInLine(c.New)
	if was && is && placeOf(c.Old) == placeOf(c.New) {
		if len(ls.readings) > 0 {
			// the place is the same, but a reading may have an older version of the task
			ls.noteMove(ls.spaces.queueOf(c).line(c.New.Line()), placeOf(c.New), true)
		}
		return
	}
	if was {
		l, at := ls.spaces.queueOf(c).line(c.Old.Line()), placeOf(c.Old)
		l.head.changedIn = ls.pipeline.current().number
		l.head.remove(at)
		ls.noteMove(l, at, false)
		ls.startReading(l)
		ls.relist(l)
	}
	if is {
		l, at := ls.spaces.queueOf(c).line(c.New.Line()), placeOf(c.New)
		l.head.changedIn = ls.pipeline.current().number
		ls.set.setOnDisk(c.New.ID, l.head.insert(at))
		ls.noteMove(l, at, true)
		ls.enlist(l)
		ls.agenda.add(l.queue)
	}
}

// enlist adds a line that has a task in memory, or may have one on disk, to the pool where takers
// find it.
func (ls *lines) enlist(l *line) {
	if l.lineup != nil {
		l.rank()
		return
	}
	key, needs := ls.poolOf(l)
	p := l.queue.pool(key, needs)
	l.lineup = l.flow.pools[p]
	if l.lineup == nil {
		l.lineup = newLineup(p, l.flow)
		l.flow.pools[p] = l.lineup
		p.turns.Set(l.lineup)
	}
	l.queue.waiting.add(l)
	l.at = l.start()
	l.lineup.lines.Set(l)
	l.queue.space.track(l)
	ls.workers.track(l)
}

// unlist takes a line out of its pool.
func (ls *lines) unlist(l *line) {
	p := l.lineup.pool
	l.lineup.lines.Delete(l)
	if l.lineup.lines.Len() == 0 {
		delete(l.flow.pools, p)
		l.flow.pools = shrunk(l.flow.pools, &l.flow.mostPools)
		if p.turns.Delete(l.lineup); p.turns.Len() == 0 {
			l.queue.pools.drop(p)
		}
	}
	l.lineup = nil
	if l.queue.waiting.remove(l); l.queue.waiting.Len() == 0 {
		ls.agenda.dropThrottle(l.queue)
	}
	l.queue.space.untrack(l)
	ls.workers.untrack(l)
	ls.pipeline.current().forgetIfUnused(l.queue)
}

// relist is called after a task has left a line. If the line is empty, relist removes it from its
// pool and deletes it, but keeps a few lines that have no fairness key and no class. A flow without
// lines becomes idle; queue.forgetIdle deletes it when the other flows have caught up with its
// turns.
func (ls *lines) relist(l *line) {
	switch {
	case l.lineup == nil:
		return
	case !l.head.empty():
		l.rank()
	default:
		ls.drop(l)
	}
	if q := l.queue; q.waiting.Len() > 0 && !q.hasTaskInLine() {
		ls.dropEmpty(q)
	}
}

func (ls *lines) drop(l *line) {
	ls.unlist(l)
	if l.kind.Fairness != "" || l.kind.Class != "" || len(l.flow.lines) > keptTypes {
		delete(l.flow.lines, l.key())
	}
	if len(l.flow.lines) == 0 {
		l.queue.idle.Set(l.flow)
	}
}

// dropsPerTurn is how many lines dropEmpty drops before other operations have their turn.
var dropsPerTurn = 200

// dropEmpty drops the lines of a queue in which no task waits. Only a taker would read on in a line
// whose head is dry, and find that it is empty; but there may be no taker for it, and the queue
// would stay for ever.
func (ls *lines) dropEmpty(q *queue) {
	n := 0
	for _, f := range q.flows {
		for _, l := range f.lines {
			if l.lineup == nil {
				continue
			}
			if n++; n > dropsPerTurn {
				ls.inbox.later(q.space.name.Tenant, func() {
					if !q.hasTaskInLine() {
						ls.dropEmpty(q)
					}
				})
				return
			}
			ls.dropReading(l.readAhead)
			l.head.more = false
			ls.drop(l)
		}
	}
}

// keptTypes is for how many types a queue keeps the pool and the line while no task of the type
// waits.
const keptTypes = 16

// poolOf returns the key and the requirements of the pool in which a line belongs at present.
func (ls *lines) poolOf(l *line) (poolKey, *lease.Requirements) {
	k := poolKey{typ: l.kind.Type}
	if l.kind.Class == "" {
		return k, nil
	}
	var needs *lease.Requirements
	if k.class = l.demands(); k.class != "" {
		needs = &l.placement.Requirements
	}
	switch {
	case l.placement.Worker != "":
		k.worker = l.placement.Worker
	case l.placement.Affinity != "":
		if b := l.queue.space.bindings[l.placement.Affinity]; b != nil {
			k.worker, k.preferred = b.worker, l.placement.Mode == lease.Preferred
		}
	}
	return k, needs
}

// regroup moves the lines of an affinity key to the pools in which they belong now. To move a line
// costs about as much as to grant a task, and a producer may give each task of the key another
// type, so each line counts as tried.
func (ls *lines) regroup(s *space, key string) {
	ls.effort.add(len(s.affinityLines[key]))
	for _, l := range slices.Collect(maps.Keys(s.affinityLines[key])) {
		ls.unlist(l)
		ls.enlist(l)
		ls.agenda.add(l.queue)
	}
}
