package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// T12: with random weights, types and takers, keys that always have waiting tasks get grants in
// proportion to their weights. The single task of a new key waits for at most one turn of each
// other key, whatever types the takers want.
func TestRandomTurnsMatchTheWeights(t *testing.T) {
	t.Attr("rules", "T12")
	for n := range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bound(t, n%3, &movesAtOnce) // of two lineups for each key
			run(t, func(r *rig) {
				w := &turnsWorld{
					rig: r, rng: rand.New(rand.NewPCG(seed, 0)), weights: map[string]float64{},
					granted: map[string]int{},
				}
				w.drawWeights()
				w.checkShares()
				for i := range 20 {
					w.checkSingleTask(i)
				}
			})
		})
	}
}

// T12: queues that share a taker take turns. The order in which the taker names them and the number
// of waiting tasks do not matter: the next turn goes to the queue whose last grant is the oldest. A
// queue that always has tasks does not starve the others.
func TestQueuesOfATakerTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	queues := []string{"long", "short", "third"}
	wants := Wants{Space: home, Worker: "w", Queues: queues}
	for name, takes := range map[string]func(*rig) func() Granted{
		"session": func(r *rig) func() Granted {
			w, n := r.joinFor(wants, 1), 0
			return func() Granted {
				r.submitTo("long") // so that "long" has a task when the slot becomes free
				g := w.grants()[n]
				n++
				return g
			}
		},
		"waiting call": func(r *rig) func() Granted { return func() Granted { return r.leaseOne(wants, time.Second) } },
		"call":         func(r *rig) func() Granted { return func() Granted { return r.leaseOne(wants, 0) } },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				for range 50 {
					r.submitTo("long")
				}
				for range 5 {
					r.submitTo("short")
					r.submitTo("third")
				}
				next, got := takes(r), []string{}
				for range 15 {
					g := next()
					got = append(got, g.Task.Spec.Queue)
					r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
				}
				for i := 0; i < len(got); i += len(queues) {
					if turn := slices.Sorted(slices.Values(got[i : i+len(queues)])); !slices.Equal(turn, queues) {
						t.Fatalf("granted from %v, want a task of each queue in turn", got)
					}
				}
			})
		})
	}
}

// T12: the turn of a queue ends after grantsPerTurn grants, even if its taker has room for more:
// the other queues of the taker come first.
func TestTurnOfAQueueEnds(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		specs := many(3*grantsPerTurn + 1)
		for _, s := range specs {
			s.Queue = "long"
		}
		specs[len(specs)-1].Queue = "short"
		r.submit(specs...)
		w := r.joinFor(Wants{Space: home, Worker: "w", Queues: []string{"long", "short"}}, 2*grantsPerTurn)
		short := slices.IndexFunc(w.grants(), func(g Granted) bool { return g.Task.Spec.Queue == "short" })
		if n := len(w.grants()); n != 2*grantsPerTurn || short < 0 || short > grantsPerTurn {
			t.Errorf("%d grants, the one of the short queue at index %d; want %d grants, and the index at most %d: a turn of the long queue",
				n, short, 2*grantsPerTurn, grantsPerTurn)
		}
	})
}

// T12: a tenant whose takers have room for all of its tasks, or that has many queues, delays
// another tenant by one turn at most: grantsPerTurn grants of one queue.
func TestQueuesOfTenantsTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	var granted []string // tenants, in the order of the grants; the loop's alone
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{Events: Events{Granted: func(t *lease.Task, _ time.Duration) { granted = append(granted, t.Tenant) }}})
		spaces := []Space{home, {home.Tenant, "other"}, {"umbra", home.Workspace}}
		specs := many(10 * grantsPerTurn)
		for _, s := range specs {
			if err := s.Fill(lease.DefaultLimits()); err != nil {
				t.Fatal(err)
			}
		}
		for _, space := range spaces {
			r.joinFor(Wants{Space: space, Worker: space.Workspace, Queues: []string{"q"}}, len(specs))
		}
		onLoop(r, func() (made []lease.Step) {
			for _, space := range spaces {
				made = append(made, r.Engine.submit(space, specs, make([]lease.Digest, len(specs))))
			}
			return made
		})
		r.shutDown()
	})
	if len(granted) != 30*grantsPerTurn {
		t.Fatalf("%d grants", len(granted))
	}
	for i, tenant := range granted[:20*grantsPerTurn] {
		if want := []string{home.Tenant, "umbra"}[i/grantsPerTurn%2]; tenant != want {
			t.Fatalf("grant %d is for tenant %q, want %q: turns of %d grants", i, tenant, want, grantsPerTurn)
		}
	}
}

// T12: while a tenant submits without end, in calls that fill a batch, a call of another tenant
// that is not its first is durable after five of these calls: that of the commit under way, of the
// next one, and of the batch that is full, then one turn, and what shares its own commit.
func TestSubmitWaitsForFewSubmitsOfAnotherTenant(t *testing.T) {
	t.Attr("rules", "T12")
	const calls, each, most = 48, 10, 5
	bound(t, each, &maxSharedChanges)
	bound(t, 4*each, &maxBatchChanges)
	run(t, func(r *rig) {
		other := Space{"umbra", home.Workspace}
		specs := many(each)
		for _, s := range specs {
			if err := s.Fill(lease.DefaultLimits()); err != nil {
				r.Fatal(err)
			}
		}
		submitOther := func() {
			if _, _, err := r.Submit(r.Context(), other, specs[:1], make([]lease.Digest, 1)); err != nil {
				r.Error(err)
			}
		}
		submitOther() // for the first task of a queue, the loop waits for the commit
		d := new(heldDisk).install(r)
		defer r.st.(*memstore.Store).SetHook(nil)
		for range calls {
			run := func() {
				r.Engine.submit(home, specs, make([]lease.Digest, each))
				time.Sleep(2 * longOp)
			}
			if err := r.inbox.put(home.Tenant, op{submits: each, run: run}); err != nil {
				r.Fatal(err)
			}
		}
		pause := func() {
			time.Sleep(sharedFor / 20)
			synctest.Wait()
		}
		for range 8 { // until the loop has found that the calls take long
			pause()
			d.results <- nil
		}
		pause()
		underWay := len(d.begun) - 1
		go submitOther()
		pause()
		close(d.results) // from now on the disk holds nothing
		pause()
		tasks := 0
		for _, commit := range d.begun[underWay:] {
			tasks += len(commit)
			if slices.ContainsFunc(commit, func(id lease.TaskID) bool { return id.Space != commit[0].Space }) {
				break
			}
		}
		if tasks > most*each+1 {
			r.Errorf("%d tasks were committed from the commit under way to that of the other tenant's task, want its own and at most %d", tasks, most*each)
		}
	})
}

// T12, W12: submits that come without end, so many that they fill each batch, hold up neither
// grants nor the end of tasks whose worker is gone.
func TestFloodOfSubmitsHoldsUpNoOtherWork(t *testing.T) {
	t.Attr("rules", "T12 W12")
	synctest.Test(t, func(t *testing.T) {
		const slots = 10
		h := newManualEngine(t, 1, slots)
		h.round() // reads the timers in the store, for which a later round would wait for its changes
		pinned, digests := h.specs(1)
		pinnedTo("nobody")(pinned[0])
		h.submitSpecs(pinned, digests)
		h.endBatch()
		time.Sleep(lease.DefaultResourceWait)
		var flood []Submission
		specs, _ := h.specs(maxBatchChanges)
		for _, s := range specs {
			flood = append(flood, Submission{Space: home, Spec: s})
		}
		if err := h.SubmitEach(home.Tenant, flood, func([]SubmitResult, error) {}); err != nil {
			t.Fatal(err)
		}
		h.round()
		got, want := h.spaces.total.counts, [countNone]uint64{countReady: uint64(maxBatchChanges - slots), countLeased: slots}
		clear(got[countCompleted:])
		if got != want {
			t.Errorf("after a round there are %d READY, %d SCHEDULED and %d leased tasks, want %d, 0 and %d: no pinned one, and all slots used",
				got[countReady], got[countScheduled], got[countLeased], want[countReady], slots)
		}
	})
}

// T12: what one tenant gets without waiting, in every batch to as many calls as a batch hands out
// tasks to, holds up no grant to another: neither repeats of a request, which get its leases again,
// nor calls that do not wait.
func TestFloodOfCallsHoldsUpNoGrants(t *testing.T) {
	t.Attr("rules", "T12 X5")
	for name, request := range map[string]string{"repeats of a request": "again", "calls that do not wait": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, other := newManualEngine(t, 1, 1), Space{"umbra", home.Workspace}
				h.round() // reads the timers in the store, for which a later round would wait for its changes
				specs, digests := h.specs(2 * takersPerBatch)
				if out := h.submit(other, specs, digests); out.Err != nil {
					t.Fatal(out.Err)
				}
				ctx, leave := context.WithCancel(t.Context())
				call := func() {
					_, _ = h.Lease(ctx, LeaseRequest{
						Wants: Wants{Space: other, Worker: "w", Queues: []string{"q"}},
						Max:   1, Request: request,
					})
				}
				go call()
				synctest.Wait()
				h.round()
				h.endBatch()
				for range 2*takersPerBatch - 1 {
					go call()
				}
				synctest.Wait()
				h.submitSpecs(h.specs(1))
				h.round()
				if n := h.spaces.tenant(home.Tenant).counts[countLeased]; n != 1 {
					t.Errorf("%d tasks of the other tenant are leased after a round, want one", n)
				}
				leave()
			})
		})
	}
}

// T12: every call waits in the lane of its tenant, so that a flood of calls of one tenant delays no
// other.
func TestCallsTakeTheTurnOfTheirTenant(t *testing.T) {
	t.Attr("rules", "T12")
	tenant := home.Tenant
	w := Wants{Space: home, Worker: "w", Queues: []string{"q"}}
	m := &Member{Session: NewSessionID(tenant, "w", "i"), Wants: w, Slots: 1, Backlog: &Backlog{}}
	held := lease.Ticket{Task: lease.TaskID{Space: 1, Seq: 1}, Attempt: 1}
	task := held.Task.String()
	calls := map[string]func(ctx context.Context, e *Engine){
		"Adopt": func(ctx context.Context, e *Engine) {
			_, _ = e.Adopt(ctx, lease.Adopt{Tenant: tenant, Task: held.Task})
		},
		"BacklogHasRoom": func(_ context.Context, e *Engine) { e.BacklogHasRoom(tenant, m.Session) },
		"Cancel": func(ctx context.Context, e *Engine) {
			_, _ = e.Cancel(ctx, lease.Cancel{Tenant: tenant, Task: held.Task})
		},
		"Delete":          func(ctx context.Context, e *Engine) { _ = e.Delete(ctx, lease.Delete{Tenant: tenant, Task: held.Task}) },
		"Dismiss":         func(_ context.Context, e *Engine) { e.Dismiss(tenant, m.Session) },
		"Explain":         func(ctx context.Context, e *Engine) { _, _ = e.Explain(ctx, tenant, held.Task) },
		"FeedAll":         func(_ context.Context, e *Engine) { e.FeedAll(tenant, []ResolvedFeed{{id: held.Task}}, func(bool) {}) },
		"Heard":           func(_ context.Context, e *Engine) { e.Heard(tenant, m.Session) },
		"Join":            func(_ context.Context, e *Engine) { e.Join(m) },
		"Judge":           func(ctx context.Context, e *Engine) { _, _ = e.Judge(ctx, tenant, []*lease.Report{{}}) },
		"Keep":            func(ctx context.Context, e *Engine) { _ = e.Keep(ctx, tenant, func(*store.Batch) {}) },
		"KnowsInstance":   func(ctx context.Context, e *Engine) { _, _ = e.KnowsInstance(ctx, tenant, "i") },
		"Lease":           func(ctx context.Context, e *Engine) { _, _ = e.Lease(ctx, LeaseRequest{Wants: w, Max: 1}) },
		"LeasesBySession": func(ctx context.Context, e *Engine) { _, _ = e.LeasesBySession(ctx, tenant) },
		"LeasesOf":        func(ctx context.Context, e *Engine) { _, _ = e.LeasesOf(ctx, tenant, m.Session) },
		"Leave":           func(_ context.Context, e *Engine) { e.Leave(m, true) },
		"Post": func(_ context.Context, e *Engine) {
			_ = e.Post(tenant, []*lease.Report{{}}, func([]lease.Answer, error) {})
		},
		"Queue":  func(ctx context.Context, e *Engine) { _, _, _ = e.Queue(ctx, home, "q", 0) },
		"Queues": func(ctx context.Context, e *Engine) { _, _ = e.Queues(ctx, home, "", 1, 0) },
		"Record": func(_ context.Context, e *Engine) { _ = e.Record(records.Audit{Tenant: tenant}) },
		"Refuse": func(_ context.Context, e *Engine) {
			_ = e.Refuse(tenant, m.Session, task, e.LeaseID(lease.Holding{Tenant: tenant, Ticket: held}))
		},
		"Replace": func(_ context.Context, e *Engine) { e.Replace(tenant, "i") },
		"Resize":  func(_ context.Context, e *Engine) { e.Resize(m, 2) },
		"Retry": func(ctx context.Context, e *Engine) {
			_, _ = e.Retry(ctx, lease.Retry{Tenant: tenant, Task: held.Task})
		},
		"Revoke": func(ctx context.Context, e *Engine) { _, _, _ = e.Revoke(ctx, tenant, []string{"i"}, false, "") },
		"RevokeLeases": func(ctx context.Context, e *Engine) {
			_, _ = e.RevokeLeases(ctx, tenant, []LeaseRef{{held.Task, 1}}, false, "")
		},
		"Sequences": func(ctx context.Context, e *Engine) { _, _ = e.Sequences(ctx, tenant, 1) },
		"Submit":    func(ctx context.Context, e *Engine) { _, _, _ = e.Submit(ctx, home, many(1), make([]lease.Digest, 1)) },
		"SubmitEach": func(_ context.Context, e *Engine) {
			_ = e.SubmitEach(tenant, []Submission{{Space: home, Spec: work()}}, func([]SubmitResult, error) {})
		},
		"Sweep":        func(ctx context.Context, e *Engine) { _, _ = e.Sweep(ctx, Sweep{Space: home}) },
		"TaskByKey":    func(ctx context.Context, e *Engine) { _, _ = e.TaskByKey(ctx, tenant, 1, "key") },
		"TenantCounts": func(ctx context.Context, e *Engine) { _, _ = e.TenantCounts(ctx, tenant) },
		"Update":       func(_ context.Context, e *Engine) { e.Update(m, w, 1) },
		"UpdateQueue":  func(ctx context.Context, e *Engine) { _, _ = e.UpdateQueue(ctx, home, "q", func(*lease.Settings) {}) },
	}
	// These do not wait for the loop, or ask it for no tenant.
	others := []string{
		"CommitPending", "Counts", "Ends", "Epoch", "Invalidated", "DeriveKey", "LeaseID",
		"LiveFeedback", "Now", "ResolveFeeds", "Run", "SpaceNumber", "Tenants", "Watch",
	}
	for method := range reflect.TypeFor[*Engine]().Methods() {
		if calls[method.Name] == nil && !slices.Contains(others, method.Name) {
			t.Errorf("%s is not in the table", method.Name)
		}
	}
	run(t, func(r *rig) {
		r.submit(work()) // makes the space
		idle, err := Open(r.st, Config{})
		if err != nil {
			r.Fatal(err)
		}
		for name, call := range calls {
			ctx, leave := context.WithCancel(r.Context())
			go call(ctx, idle)
			synctest.Wait()
			if own, all := idle.inbox.turns.waiting(tenant), idle.inbox.waiting(); own != 1 || all != 1 {
				r.Errorf("%s: %d operations wait, %d of them in the lane of the tenant, want one there", name, all, own)
			}
			if n := idle.inbox.tenants[tenant].submits.len(); (n == 1) != strings.HasPrefix(name, "Submit") {
				r.Errorf("%s: %d operations wait among the submits", name, n)
			}
			leave()
			for _, o := range idle.inbox.take(nil, math.MaxInt) {
				if o.after != nil {
					o.after(ErrStopped)
				}
			}
			synctest.Wait()
			idle.inbox.take(nil, math.MaxInt) // what the call has added when its caller left
		}
	})
}

func (r *rig) submitTo(queue string) {
	r.Helper()
	spec := work()
	spec.Queue = queue
	r.submit(spec)
}

// leaseOne leases one task by a unary call.
func (r *rig) leaseOne(w Wants, wait time.Duration) Granted {
	r.Helper()
	g, err := r.Lease(r.Context(), LeaseRequest{Wants: w, Max: 1, Wait: wait})
	if err != nil || len(g) != 1 {
		r.Fatalf("granted %v (%v), want one task", g, err)
	}
	return g[0]
}

// T12, T13: a new weight counts from the next turn on, also for a key that had another weight at
// its last turn.
func TestNewWeightCountsAtOnce(t *testing.T) {
	t.Attr("rules", "T12 T13")
	run(t, func(r *rig) {
		weigh := func(w float64) { r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"light": w} }) }
		for _, key := range []string{"light", "other"} {
			specs := many(120)
			for _, s := range specs {
				s.FairnessKey = key
			}
			r.submit(specs...)
		}
		granted := func(n int) (light int) {
			for _, g := range r.lease(n, 0) {
				if g.Task.Spec.FairnessKey == "light" {
					light++
				}
			}
			return light
		}
		weigh(0.001)
		if n := granted(20); n != 1 {
			t.Errorf("%d of 20 grants by weight 0.001, want one", n)
		}
		weigh(1)
		if n := granted(20); n < 9 || n > 11 {
			t.Errorf("%d of 20 grants by weight 1, want half", n)
		}
		weigh(4)
		if n := granted(20); n < 15 || n > 17 {
			t.Errorf("%d of 20 grants by weight 4, want 16", n)
		}
		weigh(0.001)
		if n := granted(20); n > 1 {
			t.Errorf("%d of 20 grants by weight 0.001 again, want one at most", n)
		}
		r.setQueue(func(s *lease.Settings) { s.Weights = nil })
		if n := granted(20); n < 9 || n > 11 {
			t.Errorf("%d of 20 grants without a weight, want half", n)
		}
		r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"other": 1000} })
		if n := granted(20); n > 1 {
			t.Errorf("%d of 20 grants beside weight 1000, want one at most", n)
		}
		r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"other": 1000, "light": 1000} })
		if n := granted(20); n < 9 || n > 11 {
			t.Errorf("%d of 20 grants by its first weight, which is that of the other key, want half", n)
		}
	})
}

// T12: the turns of a queue always move on, even after so many turns of low weights that a turn of
// a high weight is lost in rounding.
func TestTurnsAfterALongTime(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"a": lease.MaxWeight, "b": lease.MaxWeight} })
		onLoop(r, func() any {
			// for example after six years with a thousand turns a second, all of weight 0.001
			r.spaces.named(home).queues["q"].virtual = 1e14
			return nil
		})
		for _, key := range []string{"a", "b"} {
			specs := many(20)
			for _, s := range specs {
				s.FairnessKey = key
			}
			r.submit(specs...)
		}
		of := map[string]int{}
		for _, g := range r.lease(20, 0) {
			of[g.Task.Spec.FairnessKey]++
		}
		if of["a"] != 10 || of["b"] != 10 {
			t.Errorf("grants by key are %v, want ten of each", of)
		}
	})
}

// turnsWorld is a queue with a few fairness keys, each with many waiting tasks of two types.
type turnsWorld struct {
	*rig
	rng     *rand.Rand
	weights map[string]float64
	granted map[string]int
}

const tasksPerKey = 500

// drawWeights draws the keys and their weights, and submits their tasks.
func (w *turnsWorld) drawWeights() {
	for i := range 2 + w.rng.IntN(5) {
		w.weights[fmt.Sprint("key", i)] = math.Exp2(float64(w.rng.IntN(5) - 2))
	}
	w.setQueue(func(s *lease.Settings) { s.Weights = w.weights })
	for key := range w.weights {
		for _, typ := range []string{"a", "b"} {
			specs := many(tasksPerKey)
			for _, s := range specs {
				s.FairnessKey, s.Type, s.Priority = key, typ, int32(w.rng.IntN(3))
			}
			w.submit(specs...)
		}
	}
}

// take leases up to n tasks of the given types (all, if there are none), and returns their keys.
func (w *turnsWorld) take(n int, types ...string) (keys []string) {
	for _, g := range w.leaseTypes(n, types...) {
		keys = append(keys, g.Task.Spec.FairnessKey)
	}
	return keys
}

// someTypes returns random types that a taker wants; nil for all.
func (w *turnsWorld) someTypes() []string {
	return [][]string{nil, {"a"}, {"b"}, {"a", "b"}}[w.rng.IntN(4)]
}

// checkShares leases 300 tasks in steps of random size for random types. In the end no key is more
// than one turn ahead of its share, nor behind it by more than the turns that the others may be
// ahead.
func (w *turnsWorld) checkShares() {
	total, sum := 0, 0.0
	for _, weight := range w.weights {
		sum += weight
	}
	for total < 300 {
		keys := w.take(1+w.rng.IntN(9), w.someTypes()...)
		total += len(keys)
		for _, key := range keys {
			w.granted[key]++
		}
	}
	for key, weight := range w.weights {
		share := weight / sum
		want := share * float64(total)
		if off := float64(w.granted[key]) - want; off > 1.001 || off < -share*float64(len(w.weights))-0.001 {
			w.Errorf("key %q with weight %v got %d of %d grants, want %.1f; all grants: %v, all weights: %v",
				key, weight, w.granted[key], total, want, w.granted, w.weights)
		}
	}
}

// checkSingleTask submits one task of a new key. Before it is granted, takers that want its type
// get at most one task of each other key.
func (w *turnsWorld) checkSingleTask(i int) {
	typ := []string{"a", "b"}[w.rng.IntN(2)]
	spec := work()
	spec.Type, spec.Priority, spec.FairnessKey = typ, -1, fmt.Sprintf("%c-new%d", 'a'+w.rng.IntN(26), i)
	w.submit(spec)
	var before []string
	for {
		types := w.someTypes()
		wanted := (&Wants{Types: types}).handles(typ)
		for _, key := range w.take(1, types...) {
			switch {
			case key == spec.FairnessKey:
				return
			case wanted && slices.Contains(before, key):
				w.Fatalf("key %q had a second turn before the single task of %q: %v", key, spec.FairnessKey, before)
			case wanted:
				before = append(before, key)
			}
		}
	}
}

// Where there are tasks for all, a call that waits gets about as many as it asks for, however many
// others wait: otherwise each would have to come back for every task.
func TestManyCallsGetSeveralTasksEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 10
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		var calls []func() []Granted
		for range 4 * takersPerBatch {
			calls = append(calls, r.leaseAside(LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: most, Wait: time.Minute}))
		}
		synctest.Wait()
		specs := make([]*lease.Spec, most*len(calls))
		for i := range specs {
			specs[i] = work()
		}
		r.submit(specs...)
		synctest.Wait()
		for i, c := range calls {
			if got := len(c()); got < most/2 {
				t.Errorf("call %d got %d tasks, want at least %d", i, got, most/2)
			}
		}
		r.shutDown()
	})
}

// The takers of a queue take turns also where a turn of the queue grants less than the share of
// one, because of a limit or because few of its tasks suit them.
func TestTakersTakeTurnsOfOneTask(t *testing.T) {
	const tasks = 10
	for name, give := range map[string]func(r *rig){
		"rate limit": func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.Rate = lease.Rate{PerSecond: tasks, Burst: 1} })
			r.submit(many(10 * tasks)...)
			time.Sleep((tasks - 1) * time.Second / tasks)
		},
		"max_inflight": func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.MaxInflight = 1 })
			r.submit(many(10 * tasks)...)
			for n := range uint32(tasks) {
				r.setQueue(func(s *lease.Settings) { s.MaxInflight = n + 1 })
			}
		},
		"tasks for others": func(r *rig) {
			others := many(10 * tasks)
			for _, s := range others {
				s.Type = "other"
			}
			r.submit(others...)
			for range tasks {
				r.submit(work())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				var workers []*testSession
				for _, name := range []string{"a", "b"} {
					workers = append(workers,
						r.joinFor(Wants{Space: home, Worker: name, Queues: []string{"q"}, Types: []string{""}}, 10*tasks))
				}
				give(r)
				for _, w := range workers {
					if got := len(w.grants()); got != tasks/2 {
						t.Errorf("worker %s got %d of %d tasks, want half", w.Wants.Worker, got, tasks)
					}
				}
			})
		})
	}
}

// T12, X5: calls and sessions that can all get a task at once get them in several batches: all that
// get one in a batch become ready with its commit, and everybody else waits for them.
func TestABatchHandsOutToFewTakers(t *testing.T) {
	t.Attr("rules", "T12 X5")
	n := 4 * takersPerBatch
	for name, wait := range map[string]func(r *rig){
		"calls": func(r *rig) {
			for range n {
				r.leaseAside(LeaseRequest{
					Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1,
					Wait: time.Minute,
				})
			}
			synctest.Wait()
		},
		"sessions": func(r *rig) {
			for i := range n {
				r.join(fmt.Sprint("i", i), 2)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, inBatch := &rig{T: t, st: memstore.New()}, map[batchNumber]int{}
				var granted atomic.Int64
				r.start(Config{Events: Events{Granted: func(*lease.Task, time.Duration) { // on the loop
					granted.Add(1)
					inBatch[r.batch().number]++
				}}})
				wait(r)
				specs := make([]*lease.Spec, n)
				for i := range specs {
					specs[i] = work()
				}
				r.submit(specs...)
				synctest.Wait()
				if got := granted.Load(); got != int64(n) {
					t.Errorf("%d tasks were granted, want %d", got, n)
				}
				for batch, got := range onLoop(r, func() map[batchNumber]int { return maps.Clone(inBatch) }) {
					if most := takersPerBatch + grantsPerTurn; got > most {
						t.Errorf("batch %d hands out to %d, want at most %d", batch, got, most)
					}
				}
				r.shutDown()
			})
		})
	}
}
