package engine

import "github.com/lessor-dev/lessor/lease"

// line is the part of a queue with one type, fairness key and class: its tasks are alike for every
// taker.
type line struct {
	kind      lease.Line
	placement lease.Placement // of its class
	queue     *queue
	flow      *flow
	head      *head[place]
	lineup    *lineup    // the lineup in which takers find it; nil while nothing waits
	at        place      // the place by which it is ordered in that lineup
	readAhead *readAhead // the reading under way, or nil

	before, behind *line // its neighbours in queue.waiting
}

// lineHead is how many places of a line are kept in memory. This bound and others are variables so
// that tests can make them small.
var lineHead = 4096

// lineKey identifies a line within a flow.
type lineKey struct {
	typ   string
	class lease.Class
}

func (l *line) key() lineKey { return lineKey{l.kind.Type, l.kind.Class} }

// start returns the place of the first task of a line. If the head of the line is dry, the first
// task is not known, but it does not come before the bound of the head, which start returns then.
func (l *line) start() place {
	if at, ok := l.head.first(); ok {
		return at
	}
	return l.head.bound
}

// rank moves a line to its position in its lineup, which its first task determines.
func (l *line) rank() {
	switch at := l.start(); {
	case at == l.at:
	case l.lineup.lines.Len() == 1: // the only line has no order
		l.at = at
	default:
		l.lineup.lines.Delete(l)
		l.at = at
		l.lineup.lines.Set(l)
	}
}

// demands returns the part of the line's class that has the requirements.
func (l *line) demands() lease.Class {
	return (&lease.Spec{Requirements: &l.placement.Requirements}).Class()
}

// pinnedTo returns the worker to which the tasks of the line are pinned; its name is empty if they
// are not.
func (l *line) pinnedTo() workerKey { return workerKey{l.queue.space.name.Tenant, l.placement.Worker} }

func lineLess(a, b *line) bool {
	if a.at != b.at {
		return placeLess(a.at, b.at)
	}
	return a.kind.Class < b.kind.Class
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
