//go:build faults

package crash

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// book holds everything that clients were told, and what they asked in vain. An entry that contradicts another one fails the
// test.
type book struct {
	t *testing.T

	mu      sync.Mutex
	tasks   map[string]*task
	order   []*task // as they were heard of first
	touched map[*task]struct{}
	keyed   []*submission            // that were acknowledged and may be repeated
	submits []*submission            // that got no answer
	leases  []*lessorv1.LeaseRequest // that got no answer
	counts  counts
}

// counts are what the test prints.
type counts struct {
	submits, tasks, leases, beats, cancels, deletes int // that were acknowledged
	verdicts                                        map[lessorv1.Verdict]int
	unsureYes, unsureNo                             int // questions without an answer, by what came out
	replays, duplicates, compared, held, resubmits  int // by the checks
	streamed, carried                               int // outcomes on streams; by attempts that outlived a kill
}

// task is what is known of one task.
type task struct {
	id string
	// spec as it was submitted; nil while the submit has no answer, though a worker may already have been given the task.
	spec  *lessorv1.TaskSpec
	queue string // written once
	// attempts that unary workers were given, by number.
	attempts []*attempt
	// streamed are the verdicts that stream workers were told, by attempt.
	streamed map[uint32]answer
	// meddled: somebody asked to cancel or to delete it.
	meddled bool
	deleted fate
	// end is the final state that somebody was told; decided is the attempt whose report led there, 0 where none is known.
	end     lessorv1.TaskState
	decided uint32
	// checkpoint was acknowledged; later was sent after it and got no answer.
	checkpoint, later []byte
	// history that somebody was told.
	history []*lessorv1.HistoryEvent
}

// in enters the queue. Whoever holds an attempt may read it without a lock from then on.
func (t *task) in(queue string) {
	if t.queue == "" {
		t.queue = queue
	}
}

// fate is what is known about something that was asked for.
type fate int

const (
	no fate = iota
	perhaps
	yes
)

// attempt is a lease that a unary worker was given.
type attempt struct {
	task    *task
	number  uint32
	leaseID string
	token   uint64
	asked   *lessorv1.LeaseRequest
	// said is the one report that is sent under the lease; tries is how often it was.
	said  *report
	tries int
	// committed is the answer that said got, once it was COMMITTED.
	committed *answer
	// lost is the first CANCELLED under the lease.
	lost *answer
}

// open reports whether the holder still has to report.
func (a *attempt) open() bool { return a.said == nil && a.lost == nil }

func newBook(t *testing.T) *book {
	return &book{
		t: t, tasks: map[string]*task{}, touched: map[*task]struct{}{},
		counts: counts{verdicts: map[lessorv1.Verdict]int{}},
	}
}

// enter changes the book.
func (b *book) enter(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// wrong fails the test: a rule was broken.
func (b *book) wrong(rule string, t *task, format string, args ...any) {
	b.t.Helper()
	b.t.Errorf("%s: task %s: %s", rule, t.id, fmt.Sprintf(format, args...))
}

// touchLocked finds a task, or begins its page, and notes that something happened to it.
func (b *book) touchLocked(id string) *task {
	t := b.tasks[id]
	if t == nil {
		t = &task{id: id, streamed: map[uint32]answer{}}
		b.tasks[id] = t
		b.order = append(b.order, t)
	}
	b.touched[t] = struct{}{}
	return t
}

// any draws a task whose submit was acknowledged; nil if it draws in vain.
func (b *book) any(r *rand.Rand) *task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.order) == 0 {
		return nil
	}
	if t := b.order[r.IntN(len(b.order))]; t.spec != nil {
		return t
	}
	return nil
}

// due takes the tasks that were touched since it was last called, and a sample of the others.
func (b *book) due(sample int, r *rand.Rand) []*task {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range min(sample, len(b.order)) {
		b.touched[b.order[r.IntN(len(b.order))]] = struct{}{}
	}
	var due []*task
	for t := range b.touched {
		due = append(due, t)
	}
	clear(b.touched)
	return due
}

// all lists every task.
func (b *book) all() []*task {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.touched)
	return append([]*task(nil), b.order...)
}

// endedLocked enters a final state that somebody was told. There is one per round, and nobody here opens a second round.
func (b *book) endedLocked(t *task, state lessorv1.TaskState) {
	if !final(state) {
		return
	}
	if final(t.end) && t.end != state {
		b.wrong("A5", t, "was %v, and is %v", t.end, state)
	}
	t.end = state
}
