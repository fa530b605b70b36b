//go:build faults

package crash

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// book holds what clients were told, and which of their calls got no answer. An entry that
// contradicts an earlier one fails the test.
type book struct {
	t *testing.T

	mu      sync.Mutex
	tasks   map[string]*task
	order   []*task // in the order in which the test first heard of them
	touched map[*task]struct{}
	keyed   []*submission            // acknowledged submits that may be repeated
	submits []*submission            // submits without an answer
	leases  []*lessorv1.LeaseRequest // Lease requests without an answer
	counts  counts
}

// counts are the numbers that the test prints.
type counts struct {
	submits, tasks, leases, heartbeats, cancels, deletes int // acknowledged
	verdicts                                             map[lessorv1.Verdict]int
	// calls without an answer, by whether they had taken effect
	unsureYes, unsureNo                            int
	replays, duplicates, compared, held, resubmits int // made by the comparer
	// verdicts on streams; those for attempts that outlived a kill
	streamed, outlivedKill int
}

// task is what the test knows of one task.
type task struct {
	id string
	// spec is what was submitted; nil while the submit has no answer. A worker may have been given
	// the task before that.
	spec  *lessorv1.TaskSpec
	queue string // written once, by setQueue
	// attempts are those of unary workers, ordered by number.
	attempts []*attempt
	// streamed holds the verdicts that stream workers were told, by attempt.
	streamed map[uint32]answer
	// interfered says that a producer has tried to cancel or delete the task.
	interfered bool
	deleted    fate
	// end is the final state that a client was told. decided is the attempt whose report led to it;
	// 0 if that is not known.
	end     lessorv1.TaskState
	decided uint32
	// checkpoint is the last one that is known to be stored, by the attempt storedBy. unsure were
	// sent since the last comparison, and have no answer: two holders may have sent theirs when the
	// kill came, one of whom had lost the lease.
	checkpoint []byte
	storedBy   uint32
	unsure     [][]byte
	// history is what the last comparison found.
	history []*lessorv1.HistoryEvent
}

// setQueue sets the queue, once. From then on, the holder of an attempt may read it without the
// lock.
func (t *task) setQueue(queue string) {
	if t.queue == "" {
		t.queue = queue
	}
}

// fate says whether something that was asked for has happened.
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
	// report is the only report that is sent under the lease; tries says how often it was sent.
	report *report
	tries  int
	// committed is the COMMITTED answer to report; nil if there was none.
	committed *answer
	// lost is the first CANCELLED answer under the lease; nil if there was none.
	lost *answer
}

// open reports whether the holder still has to report.
func (a *attempt) open() bool { return a.report == nil && a.lost == nil }

func newBook(t *testing.T) *book {
	return &book{
		t: t, tasks: map[string]*task{}, touched: map[*task]struct{}{},
		counts: counts{verdicts: map[lessorv1.Verdict]int{}},
	}
}

// update changes the book under its lock.
func (b *book) update(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// violated fails the test because a rule was broken.
func (b *book) violated(rule string, t *task, format string, args ...any) {
	b.t.Helper()
	b.t.Errorf("%s: task %s: %s", rule, t.id, fmt.Sprintf(format, args...))
}

// touchLocked finds a task, or makes an entry for it, and notes that something happened to it.
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

// randomTask returns a random task whose submit was acknowledged; nil if the random choice is not
// one.
func (b *book) randomTask(r *rand.Rand) *task {
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

// due returns the tasks that were touched since its last call, and a random sample of all.
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

// endedLocked enters a final state that a client was told. It never changes, since this test calls
// no RetryTask.
func (b *book) endedLocked(t *task, state lessorv1.TaskState) {
	if !final(state) {
		return
	}
	if final(t.end) && t.end != state {
		b.violated("A5", t, "was %v, and is %v", t.end, state)
	}
	t.end = state
}
