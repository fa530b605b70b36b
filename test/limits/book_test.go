package limits

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// book has what the callers were told. It checks that no word contradicts an earlier one.
type book struct {
	w *world

	mu     sync.Mutex // guards the rest
	tasks  map[string]*task
	ids    map[string][]string     // of the tasks of each tenant, in the order in which they became known
	byKey  map[keyOf]string        // the newest task of each idempotency key
	gone   map[placeOf]time.Time   // until when a bulk delete may remove tasks of a workspace
	active map[placeOf]int         // bulk deletes under way
	leases map[string]*leaseRecord // by lease id
	grants map[attemptOf]*leaseRecord
}

type (
	placeOf struct {
		tenant *tenant
		space  string
	}
	keyOf struct {
		placeOf
		key string
	}
	attemptOf struct {
		task    string
		attempt uint32
	}
)

// task is what is known of a task.
type task struct {
	id      string
	place   placeOf
	brief   bool         // its retention is short, so it goes soon after its end
	deleted bool         // somebody may have deleted it
	adopted bool         // somebody may have adopted a result
	done    *leaseRecord // the lease under which its completion was COMMITTED; nil: none is known
	output  string       // that was committed
}

// mayBeGone reports whether the task need not be there.
func (t *task) mayBeGone() bool { return t.brief || t.deleted }

// leaseRecord is what is known of a lease.
type leaseRecord struct {
	id, task string
	attempt  uint32
	token    uint64
	sent     map[report]bool // reports that close the attempt
	closed   report          // the one that was COMMITTED; its zero value: none is known
	lost     time.Time       // when a caller was told that the lease has ended; zero: none was
	lostBy   string
}

// report is the content of a report that closes an attempt.
type report struct {
	kind   string
	output string
}

func newBook(w *world) *book {
	return &book{
		w: w, tasks: map[string]*task{}, ids: map[string][]string{}, byKey: map[keyOf]string{}, gone: map[placeOf]time.Time{}, active: map[placeOf]int{},
		leases: map[string]*leaseRecord{}, grants: map[attemptOf]*leaseRecord{},
	}
}

// submitted notes a task that a submit has made or found. began is when the call began.
func (b *book) submitted(tn *tenant, spec *lessorv1.TaskSpec, id string, created bool, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	place := placeOf{tn, spec.GetWorkspaceId()}
	t, known := b.tasks[id], b.tasks[id] != nil
	if !known {
		t = &task{id: id, place: place, brief: spec.GetRetention() != nil}
		b.tasks[id] = t
		b.ids[tn.name] = append(b.ids[tn.name], id)
	}
	t.deleted = t.deleted || b.active[place] > 0 || !began.After(b.gone[place])
	key := keyOf{place, spec.GetIdempotencyKey()}
	switch {
	case t.place != place:
		b.w.problem("A submit of %v made %s, which is a task of %v", place, id, t.place)
	case key.key == "" && !created:
		b.w.problem("T1: a submit without a key found %s", id)
	case key.key == "":
		if known {
			b.w.problem("T1: a submit without a key made %s, which is another's", id)
		}
		return
	}
	before := b.tasks[b.byKey[key]]
	if before != nil && before.id != id && !before.mayBeGone() && !t.mayBeGone() {
		b.w.problem("T1: key %s of %s in %s has made both %s and %s", key.key, tn.name, place.space, before.id, id)
	}
	if created || before == nil {
		b.byKey[key] = id
	}
}

// anyTask returns one of the newer tasks of a tenant; "" if it has none.
func (b *book) anyTask(rng *rand.Rand, tn *tenant) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := b.ids[tn.name]
	if ids = ids[max(0, len(ids)-40):]; len(ids) == 0 {
		return ""
	}
	return pick(rng, ids...)
}

// mayBeGone notes that somebody deletes a task, and mayBeAdopted that somebody adopts a result of it.
func (b *book) mayBeGone(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks[id].deleted = true
}

func (b *book) mayBeAdopted(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks[id].adopted = true
}

// deleting notes that a bulk delete of a workspace is under way until ended is called.
func (b *book) deleting(tn *tenant, space string) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	place := placeOf{tn, space}
	b.active[place]++
	for _, t := range b.tasks {
		t.deleted = t.deleted || t.place == place
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.active[place]--
		b.gone[place] = time.Now().Add(time.Second) // a step whose caller is gone may still run
	}
}

// known returns a copy of what is known of a task; nil if there is nothing.
func (b *book) known(id string) *task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tasks[id] == nil {
		return nil
	}
	t := *b.tasks[id]
	return &t
}

// tasksOf returns copies of what is known of the tasks of a workspace.
func (b *book) tasksOf(tn *tenant, space string) (all []task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.ids[tn.name] {
		if t := b.tasks[id]; t.place.space == space {
			all = append(all, *t)
		}
	}
	return all
}

// listed compares a whole list with the tasks that were known when it began.
func (b *book) listed(known []task, seen map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range known {
		if t := b.tasks[known[i].id]; !t.mayBeGone() && !seen[t.id] {
			b.w.problem("A6: %s is not in the list of all tasks", t.id)
		}
	}
}

// read compares a task, or the error with which it was read, with what was known when the call began.
func (b *book) read(known *task, id string, m *lessorv1.Task, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.tasks[id]
	switch {
	case known == nil:
	case status.Code(err) == codes.NotFound && !now.mayBeGone():
		b.w.problem("A6: %s is not there", id)
	case err != nil || known.done == nil:
	case m.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || string(m.GetOutput()) != known.output:
		b.w.problem("A5: %s was COMMITTED with %q, and is %v with %q", id, known.output, m.GetState(), m.GetOutput())
	}
}

// granted notes a lease that a worker was handed.
func (b *book) granted(a *lessorv1.Assignment) *leaseRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := a.GetTask().GetTaskId()
	l := b.leases[a.GetLeaseId()]
	if l == nil {
		l = &leaseRecord{id: a.GetLeaseId(), task: id, attempt: a.GetAttempt(), token: a.GetFencingToken(), sent: map[report]bool{}}
		b.leases[l.id] = l
		if other := b.grants[attemptOf{id, l.attempt}]; other != nil {
			b.w.problem("A1: attempt %d of %s was granted twice", l.attempt, id)
		}
		b.grants[attemptOf{id, l.attempt}] = l
	}
	if l.task != id || l.attempt != a.GetAttempt() || l.token != a.GetFencingToken() {
		b.w.problem("A2: a lease was handed out as %v, and again as %v", l, a)
	}
	return l
}

// sending notes that a report that closes the attempt is sent.
func (b *book) sending(l *leaseRecord, r report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.sent[r] = true
}

// answered checks the answer to a start or a heartbeat that was sent at began.
func (b *book) answered(l *leaseRecord, what string, v lessorv1.Verdict, why lessorv1.Reason, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case v == lessorv1.Verdict_VERDICT_COMMITTED:
		if !l.lost.IsZero() && began.After(l.lost) {
			b.w.problem("A4: a lease of %s, attempt %d, has ended (%s), and a %s was COMMITTED", l.task, l.attempt, l.lostBy, what)
		}
	case v == lessorv1.Verdict_VERDICT_REJECTED:
		b.w.problem("a %s of %s, attempt %d, was REJECTED: %v", what, l.task, l.attempt, why)
	case why == lessorv1.Reason_REASON_ALREADY_REPORTED:
		if len(l.sent) == 0 {
			b.w.problem("V5: a %s of %s, attempt %d, was told of a report that nobody has sent", what, l.task, l.attempt)
		}
	case why == lessorv1.Reason_REASON_TASK_GONE: // the task with its reports may be forgotten
	default:
		b.lose(l, what, why)
	}
}

func (b *book) lose(l *leaseRecord, what string, why lessorv1.Reason) {
	if l.closed != (report{}) {
		b.w.problem("A10: %s, attempt %d, has a COMMITTED report, and a %s was CANCELLED: %v", l.task, l.attempt, what, why)
	}
	if l.lost.IsZero() {
		l.lost, l.lostBy = time.Now(), what+" "+why.String()
	}
}

// judged checks the verdict on a report that closes the attempt.
func (b *book) judged(l *leaseRecord, r report, v lessorv1.Verdict, why lessorv1.Reason, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tasks[l.task]
	switch v {
	case lessorv1.Verdict_VERDICT_COMMITTED:
		if l.closed != (report{}) && l.closed != r {
			b.w.problem("V17: %s, attempt %d: both %v and %v were COMMITTED", l.task, l.attempt, l.closed, r)
		}
		if !l.lost.IsZero() && began.After(l.lost) {
			b.w.problem("A4: the lease of %s, attempt %d, has ended (%s), and %v was COMMITTED", l.task, l.attempt, l.lostBy, r)
		}
		l.closed = r
		if r.kind != "complete" || t == nil { // the answer to the submit may be under way
			return
		}
		if t.done != nil && t.done != l {
			b.w.problem("A5: %s is COMPLETED by attempts %d and %d", l.task, t.done.attempt, l.attempt)
		}
		t.done, t.output = l, r.output
	case lessorv1.Verdict_VERDICT_REJECTED:
		if why != lessorv1.Reason_REASON_DUPLICATE_REPORT || len(l.sent) < 2 || l.closed == r {
			b.w.problem("%v of %s, attempt %d, was REJECTED: %v; sent were %v", r, l.task, l.attempt, why, l.sent)
		}
	default:
		b.lose(l, r.kind, why)
	}
}

// checkHistories checks the histories of all tasks of a workspace: at most one live lease of a task at a time, and of a concurrency key no more than its limit.
func (b *book) checkHistories(tasks []*lessorv1.Task) {
	type event struct {
		*lessorv1.HistoryEvent
		task *lessorv1.Task
	}
	var all []event
	for _, t := range tasks {
		if t.GetHistoryDropped() == 0 {
			for _, e := range t.GetHistory() {
				all = append(all, event{e, t})
			}
		}
	}
	slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.GetSequence(), b.GetSequence()) })
	live := map[*lessorv1.Task]uint32{}
	keys := map[string]map[*lessorv1.Task]bool{}
	for _, e := range all {
		key := e.task.GetSpec().GetConcurrencyKey()
		switch e.GetType() {
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
			if live[e.task] != 0 {
				b.w.problem("A1: attempt %d of %s is granted while %d lives", e.GetAttempt(), e.task.GetTaskId(), live[e.task])
			}
			live[e.task] = e.GetAttempt()
			if key == "" {
				continue
			}
			if keys[key] == nil {
				keys[key] = map[*lessorv1.Task]bool{}
			}
			keys[key][e.task] = true
			for t := range keys[key] {
				if limit := max(t.GetSpec().GetConcurrencyLimit(), 1); len(keys[key]) > int(limit) {
					b.w.problem("T11: key %s has %d live leases, one of them of %s with limit %d", key, len(keys[key]), t.GetTaskId(), limit)
				}
			}
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED,
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED,
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ENDED:
			if live[e.task] == e.GetAttempt() {
				delete(live, e.task)
				delete(keys[key], e.task)
			}
		}
	}
}
