package engine

import (
	"container/list"
	"sync"

	"github.com/lessor-dev/lessor/lease"
)

// space is a workspace of a tenant: its sequence and its queues.
type space struct {
	name    Space
	number  uint32 // 0 before its first task
	nextSeq uint64
	queues  map[string]*queue
}

// queue is a line of tasks to its users; within, it is one line per kind of task that workers tell apart.
type queue struct {
	space     *space
	name      string
	createdAt lease.Wall // 0: no task yet, only workers that wait
	attending int        // takers that want it
	counts    [3]uint64  // by countOf

	lines []*line
	// hungry are the takers that may have room, in the order of their turns. A taker that turns out to have none sits down, and
	// comes back when it has.
	hungry list.List
}

// Indexes of queue.counts.
const (
	countReady = iota
	countScheduled
	countLeased
	uncounted
)

func countOf(t *lease.Task) int {
	switch {
	case t == nil || t.Rest.Final():
		return uncounted
	case t.Lease != nil:
		return countLeased
	case t.Rest == lease.Ready:
		return countReady
	}
	return countScheduled
}

// line is the part of a queue with one type: its tasks are alike for every taker.
type line struct {
	kind  lease.Line
	queue *queue
	head  *head[place]
}

// place is where a task stands in its line: higher priority first, then older (T2).
type place struct {
	priority int32
	place    uint64
	seq      uint64
}

func placeLess(a, b place) bool {
	switch {
	case a.priority != b.priority:
		return a.priority > b.priority
	case a.place != b.place:
		return a.place < b.place
	}
	return a.seq < b.seq
}

func placeOf(t *lease.Task) place {
	return place{priority: t.Spec.Priority, place: t.Place, seq: t.ID.Seq}
}

// lineHead is how many waiting tasks of a line are known in memory.
const lineHead = 4096

func (q *queue) lineOf(kind lease.Line) *line {
	for _, l := range q.lines {
		if l.kind == kind {
			return l
		}
	}
	return nil
}

// directory finds the number of a space; the edge reads it beside the loop.
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
