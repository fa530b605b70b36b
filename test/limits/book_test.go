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

	mu       sync.Mutex // guards the rest
	tasks    map[string]*task
	ids      map[string][]string       // of the tasks of each tenant, in the order in which they became known
	byKey    map[keyOf]string          // the newest task of each idempotency key
	gone     map[placeOf]time.Time     // until when a bulk delete may remove tasks of a workspace
	active   map[placeOf]int           // bulk deletes under way
	leases   map[string]*leaseRecord   // by lease id
	grants   map[string][]*leaseRecord // by task
	ruled    map[ruledQueue]*rules     // what was set on queues
	workers  map[workerOf]*workerRecord
	sessions map[string]*instance
	kicks    []*kick
	epochs   int            // how many epochs have begun since the first one
	since    time.Time      // when the newest epoch began
	began    []time.Time    // when each of them began
	majors   map[uint64]int // the epoch of each upper part of a fencing token
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
)

// task is what is known of a task.
type task struct {
	id      string
	place   placeOf
	made    time.Time    // when the submit that made it began; zero: it is not known
	brief   bool         // its retention is short, so it goes soon after its end
	deleted bool         // somebody may have deleted it
	purged  bool         // its queue may have been purged while it was there
	gone    bool         // its deletion was acknowledged
	maybe   bool         // a restore may have lost it
	lost    bool         // a restore has lost it
	done    *leaseRecord // the lease under which its completion was COMMITTED, or adopted; nil: none is known
	output  string       // that was committed
	adopted bool         // what the lease reported too late
}

// isOutput reports whether an output may be that of a task with an outcome.
func (t *task) isOutput(output string) bool {
	return output == t.output && !t.adopted || t.adopted && t.done.sent[report{"complete", output}]
}

// mayBeGone reports whether the task need not be there. A purge deletes only what waits (T13).
func (t *task) mayBeGone() bool {
	return t.brief || t.deleted || t.gone || t.maybe || t.lost || t.purged && t.done == nil
}

// leaseRecord is what is known of a lease.
type leaseRecord struct {
	id, task string
	attempt  uint32
	token    uint64
	epoch    int             // in which it was granted
	sent     map[report]bool // reports that close the attempt
	closed   report          // the one that was COMMITTED; its zero value: none is known
	lost     time.Time       // when a caller was told that the lease has ended; zero: none was
	lostBy   string
	late     bool      // a result came too late
	by       *instance // who was handed it; nil: a caller of Lease
	moved    bool      // another instance has named it on its stream, and may have it now
	since    time.Time // when it came to light
	refused  bool      // by its worker

	assignment *lessorv1.Assignment // nil: the SDK has it
}

// completes reports whether a result was sent under the lease.
func (l *leaseRecord) completes() bool {
	for r := range l.sent {
		if r.kind == "complete" {
			return true
		}
	}
	return false
}

// report is the content of a report that closes an attempt.
type report struct {
	kind   string
	output string
}

func newBook(w *world) *book {
	return &book{
		w: w, tasks: map[string]*task{}, ids: map[string][]string{}, byKey: map[keyOf]string{},
		gone: map[placeOf]time.Time{}, active: map[placeOf]int{},
		leases: map[string]*leaseRecord{}, grants: map[string][]*leaseRecord{}, ruled: map[ruledQueue]*rules{},
		majors:  map[uint64]int{},
		workers: map[workerOf]*workerRecord{}, sessions: map[string]*instance{},
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
	if created {
		t.made = began
	}
	t.deleted = t.deleted || b.active[place] > 0 || !began.After(b.gone[place])
	key := keyOf{place, spec.GetIdempotencyKey()}
	if began.Before(b.since) { // the answer may be of the epoch before, and come late
		t.maybe = t.maybe || !known
		return
	}
	switch {
	case t.lost && created:
		b.w.problem("A11: a submit made %s, which is the id of a task that a restore has lost", id)
	case t.lost:
		b.w.problem("A11: a submit found %s, which a restore has lost", id)
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

// lateResult returns one of the tasks of a tenant of which a result came too late; "": there is
// none.
func (b *book) lateResult(rng *rand.Rand, tn *tenant) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var late []string
	for _, id := range b.ids[tn.name] {
		t := b.tasks[id]
		if t.done == nil && !t.gone && !t.lost && slices.ContainsFunc(b.grants[id], func(l *leaseRecord) bool { return l.late }) {
			late = append(late, id)
		}
	}
	if len(late) == 0 {
		return ""
	}
	return pick(rng, late...)
}

// mayBeGone notes that somebody deletes a task, and isGone that this was acknowledged.
func (b *book) mayBeGone(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks[id].deleted = true
}

func (b *book) isGone(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks[id].gone = true
}

// adopted notes a result that an operator has adopted: one that came too late, of a task that had
// none (V15). It is the outcome of the task from now on.
func (b *book) adopted(id string, m *lessorv1.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tasks[id]
	if t.done != nil {
		b.w.problem("A5: a result of %s was adopted, although it was completed by attempt %d with %q",
			id, t.done.attempt, t.output)
	}
	for _, l := range b.grants[id] {
		if l.attempt == m.GetAdoptedAttempt() && l.closed == (report{}) && l.completes() {
			t.done, t.adopted = l, true
			return
		}
	}
	b.w.problem("V15: a result of attempt %d of %s was adopted, which has sent none, or none too late", m.GetAdoptedAttempt(), id)
}

// deleting notes that a bulk delete of a workspace is under way until ended is called. purge: it
// leaves the tasks that do not wait.
func (b *book) deleting(tn *tenant, space string, purge bool) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	place := placeOf{tn, space}
	b.active[place]++
	for _, t := range b.tasks {
		t.deleted = t.deleted || t.place == place && !purge
		t.purged = t.purged || t.place == place
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

// read compares a task, or the error with which it was read, with what was known when the call
// began.
func (b *book) read(known *task, id string, m *lessorv1.Task, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.tasks[id]
	switch {
	case known == nil:
	case err == nil && known.gone && now.gone:
		b.w.problem("A6: %s was deleted, and is there", id)
	case err == nil && known.lost:
		b.w.problem("A11: %s is there, although a restore has lost it", id)
	case status.Code(err) == codes.NotFound && !now.mayBeGone():
		b.w.problem("A6: %s is not there", id)
	case err != nil || known.done == nil:
	case m.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || !known.isOutput(string(m.GetOutput())):
		b.w.problem("A5: %s was completed with %q, and is %v with %q", id, known.output, m.GetState(), m.GetOutput())
	}
}

// granted notes a lease that an instance of a worker was handed; nil: a caller of Lease was.
func (b *book) granted(a *lessorv1.Assignment, by *instance) *leaseRecord {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := a.GetTask().GetTaskId()
	l := b.leases[a.GetLeaseId()]
	if l == nil {
		l = b.add(&leaseRecord{id: a.GetLeaseId(), task: id, attempt: a.GetAttempt(), token: a.GetFencingToken(), by: by})
		b.leases[l.id], l.assignment = l, a
	}
	if l.task != id || l.attempt != a.GetAttempt() || l.token != a.GetFencingToken() {
		b.w.problem("A2: a lease was handed out as %v, and again as %v", l, a)
	}
	if l.by != by && !l.moved {
		b.w.problem("W8: attempt %d of %s was handed to %v, and again to %v", l.attempt, id, l.by, by)
	}
	if l.epoch != b.epochs {
		b.w.problem("A11: attempt %d of %s was granted in epoch %d, and is handed out in epoch %d",
			l.attempt, id, l.epoch, b.epochs)
	}
	return l
}

// attemptBits is how many bits of a fencing token are the attempt; the rest is the epoch (A2).
const attemptBits = 21

// add adds a new lease. The fencing tokens of a task rise with its attempts, and from epoch to
// epoch.
func (b *book) add(l *leaseRecord) *leaseRecord {
	l.epoch, l.sent, l.since = b.epochs, map[report]bool{}, time.Now()
	if epoch, known := b.majors[l.token>>attemptBits]; known {
		l.epoch = epoch // it may come to light later
	}
	b.majors[l.token>>attemptBits] = l.epoch
	for _, other := range b.grants[l.task] {
		later := cmp.Or(cmp.Compare(l.epoch, other.epoch), cmp.Compare(l.attempt, other.attempt))
		if later == 0 {
			b.w.problem("A1: attempt %d of %s was granted twice", l.attempt, l.task)
		} else if later != cmp.Compare(l.token, other.token) {
			b.w.problem("A2: attempt %d of %s in epoch %d has the token %d, and attempt %d in epoch %d has %d",
				l.attempt, l.task, l.epoch, l.token, other.attempt, other.epoch, other.token)
		}
	}
	b.grants[l.task] = append(b.grants[l.task], l)
	return l
}

// names notes that an instance names a lease on its stream. If it renews the lease, the lease is
// its own from then on (W8).
func (b *book) names(l *leaseRecord, by *instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.moved = l.moved || l.by != by
}

// refuses notes that a worker refuses a lease.
func (b *book) refuses(l *leaseRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.refused = true
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
			b.w.problem("A4: a lease of %s, attempt %d, has ended (%s), and a %s was COMMITTED",
				l.task, l.attempt, l.lostBy, what)
		}
	case v == lessorv1.Verdict_VERDICT_REJECTED:
		b.w.problem("a %s of %s, attempt %d, was REJECTED: %v", what, l.task, l.attempt, why)
	case why == lessorv1.Reason_REASON_ALREADY_REPORTED:
		if len(l.sent) == 0 {
			b.w.problem("V5: a %s of %s, attempt %d, was told of a report that nobody has sent", what, l.task, l.attempt)
		}
	case why == lessorv1.Reason_REASON_TASK_GONE && l.epoch == b.epochs: // the task with its reports may be forgotten
	default:
		b.lose(l, what, why)
	}
}

// lose notes that a lease has ended. If it is of an earlier epoch, that is the reason (V7).
func (b *book) lose(l *leaseRecord, what string, why lessorv1.Reason) {
	if recovered := why == lessorv1.Reason_REASON_COORDINATOR_RECOVERED; recovered != (l.epoch != b.epochs) {
		b.w.problem("V7: a lease of %s, attempt %d, in epoch %d has ended in epoch %d: %v",
			l.task, l.attempt, l.epoch, b.epochs, why)
	}
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
		if r.kind != "complete" || t == nil || t.lost { // the answer to the submit may be under way
			return
		}
		if t.done != nil && t.done != l {
			b.w.problem("A5: %s is COMPLETED by attempts %d and %d", l.task, t.done.attempt, l.attempt)
		}
		if t.adopted {
			b.w.problem("A5: a result of %s was adopted, and one of attempt %d is COMMITTED", l.task, l.attempt)
		}
		t.done, t.output = l, r.output
	case lessorv1.Verdict_VERDICT_REJECTED:
		if why != lessorv1.Reason_REASON_DUPLICATE_REPORT || len(l.sent) < 2 || l.closed == r {
			b.w.problem("%v of %s, attempt %d, was REJECTED: %v; sent were %v", r, l.task, l.attempt, why, l.sent)
		}
	default:
		b.lose(l, r.kind, why)
		l.late = l.late || r.kind == "complete"
	}
}
