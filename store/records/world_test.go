package records_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
)

// commit commits what fn adds to a batch.
func commit(t testing.TB, s store.Store, fn func(b *store.Batch)) {
	t.Helper()
	var b store.Batch
	fn(&b)
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// view runs fn in a View, which must return no error.
func view(t testing.TB, s store.Store, fn func(r store.Reader) error) {
	t.Helper()
	if err := s.View(fn); err != nil {
		t.Fatal(err)
	}
}

// world has the expected content of a store, in plain maps, and the store itself. Each change that
// the rules make is applied to both.
type world struct {
	rules *lease.Rules
	now   lease.Now
	store *memstore.Store
	batch store.Batch

	tasks       map[lease.TaskID]*lease.Task
	keys        map[string]key
	logged      map[lease.TaskID]string // the idempotency keys of all tasks that ever were
	ledger      map[attempt]*lease.Committed
	forget      map[lease.TaskID]lease.Instant
	results     map[lease.TaskID]*lease.Result
	failures    map[lease.TaskID]*lease.Failure
	checkpoints map[lease.TaskID][]byte
	discarded   map[attempt]*lease.Result
	changed     map[lease.TaskID]bool // tasks that have changed since their submit in more than their lease
	lastSeq     uint64
}

type key struct {
	task   lease.TaskID
	digest lease.Digest
}

type attempt struct {
	task   lease.TaskID
	number uint32
}

// space is the number of the only workspace of a world.
const space = 7

func newWorld(rnd *rand.Rand) *world {
	return &world{
		rules: &lease.Rules{
			Authority: lease.NewAuthority(1, []byte("secret")), Limits: lease.DefaultLimits(),
			Entropy: rnd.Uint64, AckWithin: lease.DefaultAckWithin,
		},
		now:   lease.Now{Serving: lease.Instant(time.Second), Wall: lease.WallOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))},
		store: memstore.New(),
		tasks: map[lease.TaskID]*lease.Task{}, keys: map[string]key{}, logged: map[lease.TaskID]string{},
		ledger: map[attempt]*lease.Committed{}, forget: map[lease.TaskID]lease.Instant{},
		results: map[lease.TaskID]*lease.Result{}, failures: map[lease.TaskID]*lease.Failure{},
		checkpoints: map[lease.TaskID][]byte{},
		discarded:   map[attempt]*lease.Result{}, changed: map[lease.TaskID]bool{},
	}
}

// Task, Payload, Committed, Key, Queue, Holders, Discarded and NextSeq make the world a lease.View.
func (w *world) Task(id lease.TaskID) *lease.Task { return w.tasks[id] }

func (w *world) Payload(id lease.TaskID) []byte { return w.tasks[id].Spec.Payload }

func (w *world) Committed(id lease.TaskID, number uint32) *lease.Committed {
	return w.ledger[attempt{id, number}]
}

func (w *world) Key(_ uint32, name string) (lease.TaskID, lease.Digest, bool) {
	k, ok := w.keys[name]
	return k.task, k.digest, ok
}

func (w *world) Queue(uint32, string) lease.Queue { return lease.Queue{} }

func (w *world) Holders(_ uint32, key string) (h lease.Holders) {
	for _, t := range w.tasks {
		if t.Lease != nil && t.Spec.ConcurrencyKey == key {
			h.Count++
			h.Limit = t.Spec.ConcurrencyLimit
		}
	}
	return h
}

func (w *world) Discarded(id lease.TaskID, number uint32) *lease.Result {
	return w.discarded[attempt{id, number}]
}

func (w *world) NextSeq(uint32) uint64 {
	w.lastSeq++
	return w.lastSeq
}

// step runs a command, applies its changes to the maps and adds them to the batch.
func (w *world) step(c lease.Command) lease.Step {
	out := w.rules.Step(w.now, w, c)
	for i := range out.Changes {
		w.apply(&out.Changes[i])
		records.Put(&w.batch, &out.Changes[i])
	}
	return out
}

func (w *world) apply(c *lease.Change) {
	for i := range c.Ledger {
		w.ledger[attempt{taskOf(c).ID, c.Ledger[i].Attempt}] = &c.Ledger[i]
	}
	if c.New == nil {
		w.remove(c)
		return
	}
	id := c.New.ID
	w.tasks[id] = c.New
	w.changed[id] = w.changed[id] || c.Old != nil && c.Row
	if name := c.New.Spec.IdempotencyKey; c.Old == nil && name != "" {
		w.keys[name], w.logged[id] = key{id, c.Key}, name
	}
	if c.Result != nil {
		w.results[id] = c.Result
	}
	for _, k := range c.Kept {
		w.discarded[attempt{id, k.Attempt}] = k.Result
	}
	for _, number := range c.Dropped {
		if !c.New.KeepsResultOf(number) {
			delete(w.discarded, attempt{id, number})
		}
	}
	if c.Failure != nil {
		w.failures[id] = c.Failure
	}
	if c.Checkpoint != nil {
		w.checkpoints[id] = c.Checkpoint
	}
}

func (w *world) remove(c *lease.Change) {
	id := c.Old.ID
	delete(w.tasks, id)
	delete(w.changed, id)
	delete(w.keys, c.Old.Spec.IdempotencyKey)
	delete(w.results, id)
	delete(w.failures, id)
	delete(w.checkpoints, id)
	for _, d := range c.Old.Discarded {
		delete(w.discarded, attempt{id, d.Attempt})
	}
	if c.ForgetAt != 0 {
		w.forget[id] = c.ForgetAt
	}
}

func taskOf(c *lease.Change) *lease.Task {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// flush commits the batch.
func (w *world) flush(t testing.TB) {
	t.Helper()
	if err := w.store.Commit(t.Context(), &w.batch); err != nil {
		t.Fatal(err)
	}
	w.batch.Reset()
}

// submit submits one task.
func (w *world) submit(spec lease.Spec) *lease.Task {
	if err := spec.Fill(w.rules.Limits); err != nil {
		panic(err)
	}
	out := w.step(lease.Submit{
		Space: space, Tenant: "acme", Workspace: "main", Specs: []*lease.Spec{&spec},
		Digests: []lease.Digest{{byte(len(spec.Payload))}},
	})
	if out.Err != nil {
		panic(out.Err)
	}
	return out.Submitted[0].Task
}

// say sends a report under the live lease of a task.
func (w *world) say(id lease.TaskID, r lease.Report) lease.Answer {
	t := w.tasks[id]
	r.TaskID = id.String()
	r.LeaseID = w.rules.Authority.Issue(t.Tenant,
		lease.Ticket{Epoch: t.Lease.Epoch, Task: id, Attempt: t.Lease.Attempt, Nonce: t.Lease.Nonce})
	return w.step(lease.Judge{Tenant: t.Tenant, Reports: []*lease.Report{&r}}).Answers[0]
}

// pass moves both clocks forward.
func (w *world) pass(d time.Duration) {
	w.now = lease.Now{Serving: w.now.Serving.Add(d), Wall: w.now.Wall.Add(d)}
}

// fullWorld returns a world with at least one record of every keyspace with sealed values. Task 1
// has failed once, has a checkpoint and is leased again. Task 2 is READY, task 3 is COMPLETED, and
// task 4 was deleted. The result of task 5 came after its lease had expired, and is kept.
func fullWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(rand.New(rand.NewPCG(1, 1)))
	for i := range 4 {
		w.submit(lease.Spec{
			Queue: "mail", Type: "send", Payload: []byte("payload"), IdempotencyKey: "key" + strconv.Itoa(i),
			Priority: int32(i - 2),
			Labels:   map[string]string{"team": "blue", "of": "acme"}, StartTimeout: time.Hour,
			Retry: lease.RetryPolicy{NonRetryable: []lease.Category{lease.Timeout}},
			Requirements: &lease.Requirements{
				Runtimes: []string{"go"}, Labels: map[string]string{"a": "b"},
				Resources: map[string]float64{"cpu": 2},
			},
			ResourceRefs: []lease.ResourceRef{{ResourceID: "r", Worker: "w1"}}, Affinity: &lease.Affinity{Key: "k"},
			Trace: &lease.Trace{Host: "h", Chain: []string{"a"}, Index: new(uint32)},
		})
	}
	late := w.submit(lease.Spec{Queue: "mail", Type: "send", HeartbeatTimeout: time.Second})
	leased, done, gone := id(1), id(3), id(4)
	for _, task := range []lease.TaskID{leased, done, gone} {
		w.step(lease.Grant{Task: task, Worker: "w1"})
	}
	w.say(leased, lease.Report{Kind: lease.KindHeartbeat, Checkpoint: []byte("half")})
	yes := true
	w.say(leased, lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{
		Message: "boom", Stack: "main.go:1", Retryable: &yes, Partial: []byte("a bit"), Metrics: map[string]float64{"bytes": 1.5},
	}})
	result := &lease.Result{
		Output: []byte("output"), Metrics: map[string]float64{"rows": 3},
		Artifacts: []lease.Artifact{{ResourceID: "r", Type: "csv", SizeBytes: 9, Metadata: map[string]string{"a": "b"}}},
	}
	w.say(done, lease.Report{Kind: lease.KindComplete, Result: result})
	w.say(gone, lease.Report{Kind: lease.KindComplete, Result: result})
	w.step(lease.Delete{Tenant: "acme", Task: gone})
	w.pass(time.Minute)
	w.step(lease.Expire{Task: leased})
	w.step(lease.Grant{Task: leased, Worker: "w2", Session: "s", Request: "r"})
	records.PutInSegment(&w.batch, 1, records.EntryOfKey(w.tasks[leased], w.keys["key0"].digest))
	records.PutInTimerLog(&w.batch, 1, []store.TimerKey{store.ServingTimer(1, late.ID), store.WallTimer(w.now.Wall, leased)})
	digest := w.keys["key0"].digest
	storetest.PutOlderKey(&w.batch, space, "key0", leased.Seq, digest[:])
	records.PutSigningKey(&w.batch, records.SigningKey{Tenant: "acme", ID: "k", Secret: []byte("secret"), CreatedAt: 1})
	records.PutToken(&w.batch, records.Token{
		Tenant: "acme", ID: "t", Role: "worker", Subject: "w", Key: "k",
		IssuedAt: 1, ExpiresAt: 2,
	})
	records.PutAudit(&w.batch, &records.Audit{
		Tenant: "acme", At: 1, Serving: 2, Subject: "ann", Action: "CancelTask",
		Outcome: records.OutcomeOK, Times: 1,
	})
	records.PutSettings(&w.batch, space, "mail",
		&lease.Settings{Paused: true, Rate: lease.Rate{PerSecond: 2.5}, Weights: map[string]float64{"a": 2}})
	w.step(lease.Grant{Task: late.ID, Worker: "w3"})
	ticket := lease.Ticket{Epoch: 1, Task: late.ID, Attempt: 1, Nonce: w.tasks[late.ID].Lease.Nonce}
	w.pass(time.Second)
	w.step(lease.Judge{Tenant: "acme", Reports: []*lease.Report{{
		Kind: lease.KindComplete, TaskID: late.ID.String(), LeaseID: w.rules.Authority.Issue("acme", ticket), Result: result,
	}}})
	records.PutFeedback(&w.batch, leased, &lease.Feedback{
		Attempt: 1, Fraction: 0.5, Stage: "run", Message: "half", Metrics: map[string]float64{"loss": 0.25},
		Chunks: []lease.Chunk{{
			Channel: "out", MIMEType: "image/png", Data: []byte("png"),
			Metadata: map[string]string{"a": "b"},
		}, {Text: "line"}},
	})
	records.PutIdentity(&w.batch, records.Identity{Epoch: 1, Key: []byte("secret")})
	records.PutClock(&w.batch, w.now.Serving)
	records.PutSpace(&w.batch, records.Space{Tenant: "acme", Workspace: "main", Number: space, NextSeq: w.lastSeq + 1})
	records.PutQueue(&w.batch, records.Queue{Space: space, Name: "mail", CreatedAt: w.now.Wall, Ready: 1, Leased: 1})
	w.flush(t)
	return w
}

func id(seq uint64) lease.TaskID { return lease.TaskID{Space: space, Seq: seq} }
