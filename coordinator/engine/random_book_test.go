package engine

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// book has what the engine told the callers of each tenant. It checks that
//
//   - no caller sees, gets, changes, watches or counts what is not its own: every name (queue,
//     worker, instance, concurrency, affinity, fairness and idempotency key, request, run) is used
//     in all spaces, and means something else in each (T1, X2);
//   - no tenant has more tasks than its quota, and none is refused because of the tasks of another
//     one (X5);
//   - tenants take turns (T12), see rushes;
//   - fencing tokens rise, what was COMMITTED stays so, and no lease or task id from before a
//     restore is good after it (A2, A10, A11).
type book struct {
	w *world

	// These are guarded by world.mu.
	owners    map[lease.TaskID]Space
	digests   map[lease.TaskID]lease.Digest // of the specs
	tokens    map[lease.TaskID]*fence
	committed map[string]lease.Digest // closing reports that were COMMITTED since the last restore, by lease id

	seen map[lease.TaskID]*lease.Task // all tasks, as the last call of consistent found them
	last map[Space]uint64             // the newest sequences in the backup
	lost []lease.TaskID               // tasks that were made after the backup, and are lost since the newest restore

	// These belong to the loop of the engine.
	checkpoints map[lease.TaskID]int // the bound of the checkpoint of each task when its latest lease was granted
	rushing     bool
	turns       []string // during a rush: the tenants, in the order of the grants
}

// fence has the fencing tokens of a task that were told.
type fence struct {
	last   uint64
	leases map[uint64]string // lease id of each token
}

func newBook(w *world) *book {
	return &book{
		w: w, owners: map[lease.TaskID]Space{}, digests: map[lease.TaskID]lease.Digest{}, tokens: map[lease.TaskID]*fence{},
		committed: map[string]lease.Digest{}, checkpoints: map[lease.TaskID]int{},
	}
}

// backedUp notes the newest sequences of a backup.
func (w *world) backedUp() {
	w.last = map[Space]uint64{}
	for _, space := range w.spaces {
		if number, there := w.SpaceNumber(space); there && !w.slow { // otherwise tasks are made at the same time
			all, err := w.Sequences(w.Context(), space.Tenant, number)
			w.check(err)
			w.last[space] = all.Last()
		}
	}
}

// restored forgets what does not hold any more after a restore, and notes what is lost.
func (b *book) restored() {
	clear(b.committed)
	b.seen, b.lost = nil, nil
	for id, space := range b.owners {
		if last, kept := b.last[space]; kept && id.Seq > last {
			b.lost = append(b.lost, id)
		}
	}
}

// consistent is rig.consistent and checks of what only the book knows.
func (w *world) consistent() {
	w.Helper()
	w.seen = w.rig.consistent()
	w.checkOwners()
	w.checkQuota()
	w.checkDisplaced()
	w.checkWatches()
	w.checkEnds()
	for _, problem := range onLoop(w.rig, func() []string { return append(w.checkUsage(), w.checkFeedback()...) }) {
		w.Error(problem)
	}
}

func spaceOf(t *lease.Task) Space { return Space{t.Tenant, t.Workspace} }

// owner returns the space to which a task was submitted.
func (b *book) owner(id lease.TaskID) Space {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	return b.owners[id]
}

func (w *world) checkOwners() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, t := range w.seen {
		if owner, known := w.owners[id]; known && owner != spaceOf(t) {
			w.Errorf("task %v was submitted to %v, and is in %v", id, owner, spaceOf(t))
		}
	}
}

// unfinished counts the tasks of a tenant that have not ended, as the last call of consistent found
// them.
func (b *book) unfinished(tenant string) (n int) {
	for _, t := range b.seen {
		if t.Tenant == tenant && !t.Rest.Final() {
			n++
		}
	}
	return n
}

func (w *world) checkQuota() {
	for _, tenant := range w.tenants() {
		if n, most := w.unfinished(tenant), w.cfg.MaxTasks(tenant); n > most {
			w.Errorf("tenant %q has %d tasks that have not ended; its quota is %d", tenant, n, most)
		}
	}
}

// checkDisplaced checks that no session has lost its stream to another worker, or to a worker of
// another tenant.
func (w *world) checkDisplaced() {
	for _, h := range w.clients {
		h.mu.Lock()
		if h.displaced && !h.ended {
			w.Errorf("session %s of %v is displaced, and no other session of its instance has joined", h.Session, h.Wants)
		}
		h.mu.Unlock()
	}
}

// checkUsage checks that the checkpoint of a task counts in the bytes of its holder (W4).
func (w *world) checkUsage() (problems []string) {
	for _, t := range w.sessions.byID {
		for id, used := range t.used.leases {
			task := w.set.task(id)
			least, most := uint64(task.Spec.Size+w.checkpoints[id]), uint64(task.Spec.Size+task.CheckpointBound())
			if used.bytes < least || used.bytes > most {
				problems = append(problems,
					fmt.Sprintf("worker %q counts %d bytes for task %v, want %d to %d",
						t.wants.Worker, used.bytes, id, least, most))
			}
		}
	}
	return problems
}

// checkFeedback checks that the last feedback of an attempt is that of its tenant: feeds sends the
// name of the tenant.
func (w *world) checkFeedback() (problems []string) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	for id, said := range w.hub.recent {
		if owner := w.Engine.spaces.of(id).name.Tenant; said.Stage != owner {
			problems = append(problems, fmt.Sprintf("feedback of tenant %q is kept for task %v of tenant %q",
				said.Stage, id, owner))
		}
	}
	return problems
}

// granting is called on the loop of the engine at each grant.
func (b *book) granting(t *lease.Task, _ time.Duration) {
	b.checkpoints[t.ID] = t.CheckpointBound()
	if b.rushing {
		b.turns = append(b.turns, t.Tenant)
	}
}

// due is what a submit must answer.
type due struct {
	space   Space
	specs   []*lease.Spec
	digests []lease.Digest
	exact   bool // the fields below are known, because no other call is under way
	full    bool // it must be refused because of the quota
	exists  bool // it must be refused because of an idempotency key
	created []bool
	tasks   []lease.TaskID // of those that are there already; zero for new ones
}

// expected computes what a submit must answer.
func (w *world) expected(space Space, specs []*lease.Spec, digests []lease.Digest) *due {
	d := &due{space: space, specs: specs, digests: digests, exact: !w.slow}
	if w.slow {
		return d
	}
	known := map[string]lease.TaskID{}
	for id, t := range w.seen {
		if spaceOf(t) == space && t.Spec.IdempotencyKey != "" {
			known[t.Spec.IdempotencyKey] = id
		}
	}
	made, first := 0, map[string]int{}
	for i, s := range specs {
		id, found := known[s.IdempotencyKey]
		j, again := first[s.IdempotencyKey]
		created := false
		switch {
		case again:
			id = d.tasks[j]
			d.exists = d.exists || digests[i] != digests[j]
		case found:
			d.exists = d.exists || digests[i] != w.digests[id]
		default:
			created = true
			made++
		}
		if !again && s.IdempotencyKey != "" {
			first[s.IdempotencyKey] = i
		}
		d.tasks, d.created = append(d.tasks, id), append(d.created, created)
	}
	d.full = made > 0 && w.unfinished(space.Tenant)+made > w.cfg.MaxTasks(space.Tenant)
	return d
}

// submitted checks the answer to a submit.
func (w *world) submitted(e *Engine, d *due, made []lease.Submitted, err error) {
	var exists *lease.ExistsError
	full, known := errors.Is(err, ErrTaskLimit), errors.As(err, &exists)
	switch {
	case d.exact && (full != d.full || known != (d.exists && !d.full)):
		w.Errorf("submit to %v: %v; want a refusal by the quota: %v, or else by an idempotency key: %v",
			d.space, err, d.full, d.exists)
	case full && w.cfg.MaxTasks(d.space.Tenant) == math.MaxInt:
		w.Errorf("tenant %q has no quota, and is refused by it", d.space.Tenant)
	case !full && !known:
		w.check(err)
	}
	number, _ := e.SpaceNumber(d.space)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range made {
		id := m.Task.ID
		owner, old := w.owners[id]
		_, created := w.digests[id]
		switch {
		case spaceOf(m.Task) != d.space || id.Space != number || old && owner != d.space:
			w.Errorf("a submit to %v (space %d) is answered with task %v of %v", d.space, number, id, spaceOf(m.Task))
		case m.Task.Spec.IdempotencyKey != d.specs[i].IdempotencyKey:
			w.Errorf("a submit with idempotency key %q is answered with task %v, which has %q",
				d.specs[i].IdempotencyKey, id, m.Task.Spec.IdempotencyKey)
		case m.Created && created:
			w.Errorf("task %v has the id of an earlier one (A11)", id)
		case d.exact && (m.Created != d.created[i] || d.tasks[i] != (lease.TaskID{}) && id != d.tasks[i]):
			w.Errorf("a submit with idempotency key %q is answered with task %v (created: %v), want %v (%v)",
				d.specs[i].IdempotencyKey, id, m.Created, d.tasks[i], d.created[i])
		}
		if w.owners[id] = d.space; m.Created {
			w.digests[id] = d.digests[i]
		}
	}
}

// mayRetry returns a function that checks the answer to the retry of a task.
func (w *world) mayRetry(tenant string, id lease.TaskID) func(error) {
	most, t := w.cfg.MaxTasks(tenant), w.seen[id]
	full := t != nil && (t.Rest == lease.Failed || t.Rest == lease.Cancelled) && w.unfinished(tenant) >= most
	return func(err error) {
		if refused := errors.Is(err, ErrTaskLimit); refused && most == math.MaxInt || !w.slow && refused != full {
			w.Errorf("retry of %v by tenant %q, whose quota is %d: %v; want a refusal by the quota: %v",
				id, tenant, most, err, full)
		}
	}
}

// verdict is a closing report that was COMMITTED.
type verdict struct {
	digest lease.Digest
	known  bool
}

// verdicts returns what was COMMITTED under the leases of reports before.
func (w *world) verdicts(reports []*lease.Report) []verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]verdict, len(reports))
	for i, r := range reports {
		all[i].digest, all[i].known = w.committed[r.LeaseID]
	}
	return all
}

// judged checks the answer to a report of the tenant to which the lease was granted. before is what
// was COMMITTED under the lease before the report.
func (w *world) judged(e *Engine, tenant string, r *lease.Report, before verdict, a lease.Answer) {
	ticket, genuine := e.rules.Authority.Open(tenant, r.LeaseID)
	second := a.Reason == lease.DuplicateReport || a.Reason == lease.AlreadyReported
	same := before.known && r.Kind.Closes() && r.Digest() == before.digest
	switch {
	case !genuine || a.Reason == lease.UnknownTask || a.Reason == lease.InvalidLease:
		w.Errorf("lease %s of task %s is not known as one of tenant %q: %v", r.LeaseID, r.TaskID, tenant, a)
	case same && (a.Verdict != lease.VerdictCommitted || !a.Replayed), before.known && !same && !second:
		w.Errorf("a report was COMMITTED under lease %s; now %v is answered with %v", r.LeaseID, r.Kind, a)
	case ticket.Epoch != e.Epoch() && !a.Replayed && !second && a.Reason != lease.CoordinatorRecovered:
		w.Errorf("lease %s is of epoch %d, and the engine is in %d; %v is answered with %v",
			r.LeaseID, ticket.Epoch, e.Epoch(), r.Kind, a)
	}
	if a.Verdict == lease.VerdictCommitted && r.Kind.Closes() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.committed[r.LeaseID] = r.Digest()
	}
}

// checkDeliveries makes the book check what a session is told.
func (w *world) checkDeliveries(h *client) {
	e, tenant, deliver, notify := w.Engine, h.Wants.Space.Tenant, h.Deliver, h.Notify
	h.Deliver = func(all []Granted) {
		if len(all) == 0 {
			w.Errorf("session %s is delivered no lease", h.Session)
		}
		w.delivered(h, tenant, all)
		deliver(all)
	}
	h.Notify = func(all []Notice) {
		for _, n := range all {
			if ticket, genuine := e.rules.Authority.Open(tenant, n.LeaseID); !genuine || ticket.Task != n.Task {
				w.Errorf("session %s of tenant %q is told of lease %s of task %v, which is not the tenant's",
					h.Session, tenant, n.LeaseID, n.Task)
			}
		}
		notify(all)
	}
}

func (w *world) delivered(h *client, tenant string, all []Granted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range all {
		if got := spaceOf(g.Task); got.Tenant != tenant || !g.Again && !slices.Contains(h.spaces, got) {
			w.Errorf("session %s, which wants tasks of %v, gets task %v of %v", h.Session, h.spaces, g.Task.ID, got)
		}
		if f := w.fence(g); !g.Again && g.Token < f.last {
			w.Errorf("task %v: token %d after %d (A2)", g.Task.ID, g.Token, f.last)
		}
	}
}

// fence notes the token of a lease that a worker got.
func (b *book) fence(g Granted) *fence {
	f := b.tokens[g.Task.ID]
	if f == nil {
		f = &fence{leases: map[uint64]string{}}
		b.tokens[g.Task.ID] = f
	}
	if other, told := f.leases[g.Token]; told && other != g.LeaseID {
		b.w.Errorf("task %v: the leases %s and %s have token %d (A2)", g.Task.ID, other, g.LeaseID, g.Token)
	}
	f.leases[g.Token] = g.LeaseID
	f.last = max(f.last, g.Token)
	return f
}

// moves notes that a session wants tasks of another space from now on.
func (w *world) moves(h *client, to Space) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.spaces = append(h.spaces, to)
}

// leased checks the answer to a unary request.
func (w *world) leased(req LeaseRequest, got []Granted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range got {
		if spaceOf(g.Task) != req.Space || g.Task.Lease.Worker != req.Worker || g.Task.Lease.Request != req.Request {
			w.Errorf("request %q of worker %q of %v gets task %v of %v, which worker %q leased by request %q",
				req.Request, req.Worker, req.Space,
				g.Task.ID, spaceOf(g.Task), g.Task.Lease.Worker, g.Task.Lease.Request)
		}
		w.fence(g)
	}
}

// intrudes makes a caller of one tenant name a task or lease of another one. It must be answered as
// if nobody had that task, and nothing may change.
func (w *world) intrudes() {
	id, ok := w.anyTask()
	_, g, leased := w.anyLease(false)
	who := pick(w, w.tenants()...)
	if how := w.rng.IntN(10); how < 6 {
		if ok && w.owner(id).Tenant != who {
			w.intrudesOn(who, id, how)
		}
	} else if leased && g.Task.Tenant != who {
		w.saysOf(who, g, how)
	}
}

// intrudesOn makes a caller of a tenant name a task of another one.
func (w *world) intrudesOn(who string, id lease.TaskID, how int) {
	what, before := "", w.seen[id]
	if before == nil && how == 5 {
		// if a restore has lost the task, its space may have been lost, too, and its number may be
		// that of another tenant's space now
		return
	}
	w.do(func(e *Engine) {
		var err error
		switch how {
		case 4:
			what = "explain"
			_, err = e.Explain(w.Context(), who, id)
		case 5:
			what = "sequences"
			_, err = e.Sequences(w.Context(), who, id.Space)
		default:
			what, err = w.command(e, who, id, how, true)
		}
		w.note("%s of %v by a stranger of %q: %v", what, id, who, err)
		if !errors.Is(err, lease.ErrNotFound) {
			w.stopped(err, "%s of task %v of %v by tenant %q", what, id, w.owner(id), who)
		}
	})
	w.unchanged(before)
}

// stopped reports the answer to a call that should have been lease.ErrNotFound, unless the engine
// was stopped meanwhile.
func (w *world) stopped(err error, format string, args ...any) {
	if err == nil {
		err = errors.New("no error")
	}
	w.check(fmt.Errorf(format+": %w; want %w", append(args, err, lease.ErrNotFound)...))
}

// saysOf makes a caller of a tenant report about a lease of another one.
func (w *world) saysOf(who string, g Granted, how int) {
	before, session := w.seen[g.Task.ID], ""
	if h := w.anyClient(); h != nil && h.Wants.Space.Tenant == who {
		session = h.Session
	}
	switch how {
	case 6:
		w.feed(who, Feed{TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Stage: who})
	case 7:
		if err := w.Refuse(who, session, g.Task.ID.String(), g.LeaseID); !errors.Is(err, errNotHeld) {
			w.Errorf("tenant %q refuses task %v of %v: %v", who, g.Task.ID, spaceOf(g.Task), err)
		}
	default:
		kind := pick(w, lease.KindStart, lease.KindHeartbeat, lease.KindAck, lease.KindRelease)
		of := lease.Report{Kind: kind, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Session: session}
		nobodys := of
		nobodys.TaskID = lease.TaskID{Space: lease.MaxSpace, Seq: 1}.String()
		w.do(func(e *Engine) {
			a, err := e.Judge(w.Context(), who, []*lease.Report{&of, &nobodys})
			if w.check(err); err == nil && (a[0].Verdict != lease.VerdictRejected || a[0].Reason != lease.UnknownTask || !reflect.DeepEqual(a[0], a[1])) {
				w.Errorf("a report of tenant %q on task %v of %v is answered with %+v, and one on no task with %+v (V2)", who, g.Task.ID, spaceOf(g.Task), a[0], a[1])
			}
		})
	}
	w.note("a stranger of %q speaks for lease %s of task %v: %d", who, g.LeaseID, g.Task.ID, how)
	w.unchanged(before)
}

// unchanged checks that a task is as it was, if no other call is under way.
func (w *world) unchanged(before *lease.Task) {
	if w.slow || before == nil {
		return
	}
	if t := w.version(before.ID); t == nil || t.State() != before.State() || t.LastSeq() != before.LastSeq() {
		w.Errorf("task %v of %v was %v, and a stranger has made it %+v", before.ID, spaceOf(before), before.State(), t)
	}
}

// looks compares what each tenant can count with its tasks.
func (w *world) looks() {
	if w.slow {
		return // the tasks change while they are counted
	}
	w.looksAtTenants()
	total := Counts{}
	for _, space := range append(w.spaces, Space{home.Tenant, "unused"}, Space{"nobody", home.Workspace}) {
		type counts struct {
			Counts
			ended [3]uint64 // COMPLETED, FAILED, CANCELLED
		}
		want := map[string]counts{}
		for _, t := range w.seen {
			if spaceOf(t) != space {
				continue
			}
			n := want[t.Spec.Queue]
			n.add(t)
			total.add(t)
			if t.Rest.Final() {
				n.ended[t.Rest-lease.Completed]++
			}
			want[t.Spec.Queue] = n
		}
		listed, err := w.Queues(w.Context(), space, "", math.MaxInt, 0)
		w.check(err)
		for _, q := range listed {
			got := counts{
				Counts{q.Ready - q.Parked, q.Parked, q.Scheduled, q.Leased},
				[3]uint64{q.Completed, q.Failed, q.Cancelled},
			}
			if got != want[q.Name] {
				w.Errorf("queue %q of %v is shown with %+v, and has %+v", q.Name, space, got, want[q.Name])
			}
			delete(want, q.Name)
		}
		if len(want) > 0 {
			w.Errorf("these queues of %v are not listed: %v", space, slices.Collect(maps.Keys(want)))
		}
	}
	for _, space := range w.spaces {
		w.looksAtSequences(space)
	}
	if n, err := w.Counts(w.Context()); err != nil || n != total {
		w.Errorf("all tasks are counted as %+v (%v), and are %+v", n, err, total)
	}
}

// looksAtTenants compares what each tenant is told that it has, and what the host is told that each
// has, with its tasks.
func (w *world) looksAtTenants() {
	listed := map[string]TenantCounts{}
	for after, size := "", pick(w, 1, 2, 10); ; {
		page, err := w.Tenants(w.Context(), after, size)
		w.check(err)
		for _, n := range page {
			if n.Name <= after {
				w.Errorf("tenant %q is listed after %q", n.Name, after)
			}
			listed[n.Name], after = n, n.Name
		}
		if len(page) < size {
			break
		}
	}
	for _, tenant := range append(w.tenants(), "nobody") {
		want := TenantCounts{Name: tenant}
		for _, t := range w.seen {
			if t.Tenant == tenant {
				want.add(t)
			}
		}
		n, err := w.TenantCounts(w.Context(), tenant)
		want.Workspaces = n.Workspaces // inspections count them
		if err != nil || n != want {
			w.Errorf("tenant %q is told of %+v (%v), and has %+v", tenant, n, err, want)
		}
		if own, ok := listed[tenant]; own != n && (ok || n != TenantCounts{Name: tenant}) {
			w.Errorf("tenant %q is listed with %+v, and is told of %+v", tenant, own, n)
		}
		if unended := want.Unended(); unended != uint64(w.unfinished(tenant)) {
			w.Errorf("tenant %q has %d unended tasks, want %d", tenant, unended, w.unfinished(tenant))
		}
	}
}

// add counts a task.
func (n *TenantCounts) add(t *lease.Task) {
	switch countOf(t) {
	case countReady:
		n.Ready++
	case countScheduled:
		n.Scheduled++
	case countLeased:
		n.Leased++
	case countCompleted:
		n.Completed++
	case countFailed:
		n.Failed++
	case countCancelled:
		n.Cancelled++
	}
	if isParked(t) {
		n.Parked++
	}
}

// looksAtSequences checks that the sequences of a space that a restore has lost are told from those
// that there are (A11).
func (w *world) looksAtSequences(space Space) {
	if _, there := w.SpaceNumber(space); !there {
		return
	}
	all := w.sequences(space)
	for _, id := range w.lost {
		if w.owner(id) == space && !all.Lost(id.Seq) {
			w.Errorf("the restore has lost task %v, and its sequence does not count as lost: %+v", id, all)
		}
	}
	for id, t := range w.seen {
		if spaceOf(t) == space && (all.Lost(id.Seq) || all.Last() < t.LastSeq()) {
			w.Errorf("task %v is there, and its sequences count as lost: %+v", id, all)
		}
	}
}

// add counts a task.
func (c *Counts) add(t *lease.Task) {
	switch {
	case isParked(t):
		c.Parked++
	case countOf(t) == countReady:
		c.Ready++
	case countOf(t) == countScheduled:
		c.Scheduled++
	case countOf(t) == countLeased:
		c.Leased++
	}
}

// watch is a subscription and the last news of each task that it got.
type watch struct {
	*Subscription
	space Space
	of    Watching
	last  map[lease.TaskID]*lease.Task
}

// opensWatch watches the run of a space, or one task.
func (w *world) opensWatch() {
	space := w.anySpace()
	if len(w.watches) > 8 {
		return
	}
	of := Watching{Space: space, Run: "u"}
	if id, ok := w.anyTask(); ok && w.one(2) {
		space, of = w.owner(id), Watching{Task: id}
	}
	w.watches = append(w.watches, &watch{Subscription: w.Watch(of), space: space, of: of, last: map[lease.TaskID]*lease.Task{}})
	w.note("watch %+v", of)
}

// checkWatches reads all the news that has come, and checks that watchers got that of their tasks,
// and no other.
func (w *world) checkWatches() {
	for _, watch := range w.watches {
		w.read(watch)
		for id, last := range watch.last {
			if now := w.seen[id]; !w.slow && ((last == nil) != (now == nil) || last != nil && (last.State() != now.State() || last.LastSeq() != now.LastSeq())) {
				w.Errorf("a watch of %+v of %v was told last of %+v, and the task is %+v", watch.of, watch.space, last, now)
			}
		}
	}
}

// listensToEnd listens to the end of a task, which may have ended.
func (w *world) listensToEnd() {
	id, ok := w.anyTask()
	if !ok {
		return
	}
	if w.ends == nil {
		w.ends, w.listens = w.Ends(), map[lease.TaskID]bool{}
	}
	w.ends.Listen(id)
	w.listens[id] = false
	w.note("listen to the end of %v", id)
}

// checkEnds checks that who listened to a task that had not ended was told of its end. listens says
// which of those that are listened to had not.
func (w *world) checkEnds() {
	if w.ends == nil {
		return
	}
	for _, id := range w.ends.Take() {
		w.ends.Forget(id)
		delete(w.listens, id)
	}
	for id, lives := range w.listens {
		now := w.seen[id]
		ended := now == nil || now.State().Final()
		if lives && ended && !w.slow {
			w.Errorf("the end of task %v was not told", id)
		}
		w.listens[id] = !ended
	}
}

func (w *world) read(watch *watch) {
	for n, missed := watch.poll(w.T); n != nil; n, missed = watch.poll(w.T) {
		if owner := w.owner(n.ID); owner != (Space{}) && owner != watch.space {
			w.Errorf("a watch of %+v of %v gets news of task %v of %v", watch.of, watch.space, n.ID, owner)
		}
		if n.Task != nil && spaceOf(n.Task) != watch.space || n.ID != watch.of.Task && (watch.of.Run == "" || n.Task != nil && n.Task.Spec.RunID != watch.of.Run) {
			w.Errorf("a watch of %+v of %v gets news of task %v: %+v", watch.of, watch.space, n.ID, n.Task)
		}
		if missed.All > 0 {
			clear(watch.last)
		}
		if n.Feed == nil {
			watch.last[n.ID] = n.Task
		}
	}
}

// feeds sends progress of an attempt, which may have ended. See checkFeedback.
func (w *world) feeds() {
	if _, g, ok := w.anyLease(false); ok {
		w.feed(g.Task.Tenant, Feed{TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Stage: g.Task.Tenant})
		w.note("feed of %v", g.Task.ID)
	}
}

// rushes gives each tenant a taker and some tasks at the same instant, and lets each put some
// operations into the inbox. While a tenant has a task and the taker has room, every other tenant
// gets one turn at most before its next grant (T12; docs/decisions/0008-turns.md): at most
// grantsPerTurn grants. While an operation of a tenant waits, every other tenant has one turn at
// most before it: one operation.
func (w *world) rushes() {
	if w.slow || len(w.tenants()) == 1 {
		return
	}
	specs, tenants := map[Space][]*lease.Spec{}, w.tenants()
	w.rng.Shuffle(len(tenants), func(i, j int) { tenants[i], tenants[j] = tenants[j], tenants[i] })
	for _, space := range w.spaces {
		room := w.cfg.MaxTasks(space.Tenant) - w.unfinished(space.Tenant)
		for other, submitted := range specs {
			if other.Tenant == space.Tenant {
				room -= len(submitted)
			}
		}
		for range min(room, w.rng.IntN(3*grantsPerTurn)) {
			s := &lease.Spec{Queue: "rush", HeartbeatTimeout: 10 * time.Second}
			if err := s.Fill(lease.DefaultLimits()); err != nil {
				w.Fatal(err)
			}
			specs[space] = append(specs[space], s)
		}
		w.joinAs("rush "+space.Workspace, Wants{Space: space, Worker: pick(w, workerNames...), Queues: []string{"rush"}}, 100)
	}
	w.consistent() // nothing else is under way
	var ran []string
	ops := map[string]int{}
	for _, tenant := range tenants {
		ops[tenant] = w.rng.IntN(5)
	}
	made := onLoop(w.rig, func() (made [][]lease.Submitted) {
		w.rushing, w.turns = true, nil
		for _, space := range w.spaces {
			var out lease.Step
			if len(specs[space]) > 0 { // the edge refuses an empty submit
				out = w.Engine.submit(space, specs[space], make([]lease.Digest, len(specs[space])))
			}
			made = append(made, out.Submitted)
		}
		for _, tenant := range tenants {
			for range ops[tenant] {
				_ = w.inbox.put(tenant, op{run: func() { ran = append(ran, tenant) }})
			}
		}
		return made
	})
	synctest.Wait() // the grants may take several rounds
	turns := onLoop(w.rig, func() []string {
		w.rushing = false
		return w.turns
	})
	w.note("rush: granted to %v, run for %v", turns, ran)
	sum := 0
	for i, space := range w.spaces {
		w.submitted(w.Engine, &due{space: space, specs: specs[space], digests: make([]lease.Digest, len(specs[space]))},
			made[i], nil)
		for _, m := range made[i] {
			w.tasks = append(w.tasks, m.Task.ID)
		}
		sum += len(made[i])
	}
	if len(turns) != sum {
		w.Errorf("%d grants in a rush of %d tasks", len(turns), sum)
	}
	w.takeTurns("grants", turns, grantsPerTurn)
	w.takeTurns("operations", ran, 1)
}

// takeTurns checks that between two turns of a tenant no other tenant has more than most.
func (w *world) takeTurns(what string, turns []string, most int) {
	for i, tenant := range turns {
		had := map[string]int{}
		for j := i - 1; j >= 0 && turns[j] != tenant; j-- {
			if had[turns[j]]++; had[turns[j]] == most+1 {
				w.Errorf("tenant %q waits while tenant %q has more than %d %s: %v", tenant, turns[j], most, what, turns[:i+1])
			}
		}
	}
}
