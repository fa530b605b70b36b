package engine

import "github.com/lessor-dev/lessor/lease"

// tally counts tasks.
type tally struct {
	counts [countNone]uint64 // indexed by countOf and countedAs
	parked uint64            // how many of the ready ones are parked
}

func (t *tally) add(other tally) {
	for i, n := range other.counts {
		t.counts[i] += n
	}
	t.parked += other.parked
}

// recount updates the tally after a change of a task; before and after are how its two versions are
// counted.
func (t *tally) recount(c *lease.Change, before, after int) {
	if before != countNone {
		t.counts[before]--
	}
	if after != countNone {
		t.counts[after]++
	}
	if isParked(c.Old) {
		t.parked--
	}
	if isParked(c.New) {
		t.parked++
	}
}

// unended returns how many of the tasks have not ended.
func (t *tally) unended() uint64 {
	return t.counts[countReady] + t.counts[countScheduled] + t.counts[countLeased]
}

// Indexes of tally.counts.
const (
	countReady = iota
	countScheduled
	countLeased
	countCompleted
	countFailed
	countCancelled
	countOlder // ended, in whatever state; see countedAs
	countNone  // there is no task
)

func countOf(t *lease.Task) int {
	switch {
	case t == nil:
		return countNone
	case t.Rest == lease.Completed:
		return countCompleted
	case t.Rest == lease.Failed:
		return countFailed
	case t.Rest == lease.Cancelled:
		return countCancelled
	case t.Lease != nil:
		return countLeased
	case t.Rest == lease.Ready:
		return countReady
	}
	return countScheduled
}
