package engine

import (
	"container/list"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/records"
)

// queue is a queue of a space. Inside, it has one line for each kind of task that workers
// distinguish.
type queue struct {
	space     *space
	name      string
	createdAt lease.Wall  // 0: it does not exist, there are only workers that wait for it
	attending int         // number of takers that want its tasks
	leftAt    lease.Wall  // while there are none: when the last one left; 0: before the start, or never
	tally                 // counts of its tasks
	writtenIn batchNumber // the last batch that writes its record
	settings  *lease.Settings
	bucket    lease.Bucket // of the rate limit

	// These three are made with its first line: thousands of workers may wait for a hundred queues
	// each that have never had a task.
	flows map[string]*flow   // by fairness key
	pools pools              // of the lines in which a task waits
	idle  ordered.Set[*flow] // flows without a task, kept because they have already used turns

	virtual float64      // virtual time: where the last turn began
	waiting waitingLines // the lines in which a task waits
	// available holds the takers that may have room, in the order of their turns. If a taker has no
	// room when its turn comes, it is removed (taker.withdraw), and comes back when it has room
	// (offer).
	available list.List
	// goOnAt is the taker at which the next turn goes on: the last turn ended before it had looked
	// at all takers. nil: the next turn begins at the first.
	goOnAt *list.Element
	// news: since a turn last began at the first taker, something has changed, so that takers may
	// have a task that had none before.
	news   bool
	marked bool // it is in agenda.queues
	// throttled is when its rate limit allows the next grant, while it is in agenda.throttled;
	// otherwise 0.
	throttled lease.Instant
	// lastGrant is the value of agenda.grants at the last grant of the queue; 0: none since the
	// start.
	lastGrant uint64
}

// noSettings are the settings of a queue on which nothing was set.
var noSettings lease.Settings

func newQueue(s *space, name string) *queue {
	return &queue{space: s, name: name, settings: &noSettings}
}

// unused reports whether nothing needs the queue: it has no tasks, not even ended ones, no workers,
// and nothing was set on it. Such a queue is forgotten, so that names that are used once do not
// fill the memory. It has to wait until lines.dropEmpty has dropped its lines.
func (q *queue) unused() bool {
	return q.counts == [len(q.counts)]uint64{} && q.waiting.Len() == 0 && q.attending == 0 && q.settings == &noSettings
}

// hasTaskInLine reports whether a task of the queue waits in a line.
func (q *queue) hasTaskInLine() bool { return q.counts[countReady] > q.parked }

// record returns the record of the queue in the store.
func (q *queue) record() records.Queue {
	r := records.Queue{
		Space:     q.space.number,
		Name:      q.name,
		CreatedAt: q.createdAt,
		Ready:     q.counts[countReady],
		Scheduled: q.counts[countScheduled],
		Leased:    q.counts[countLeased],
		Parked:    q.parked,
		Completed: q.counts[countCompleted],
		Failed:    q.counts[countFailed],
		Cancelled: q.counts[countCancelled],
		Older:     q.counts[countOlder],
	}
	if q.settings.Rate.PerSecond != 0 {
		bucket := q.bucket
		r.Bucket = &bucket
	}
	return r
}

// state returns the state of the queue that the rules need.
func (q *queue) state() lease.Queue {
	return lease.Queue{Settings: q.settings, Leased: q.counts[countLeased], Bucket: q.bucket}
}
