package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// W4, W12: under random events, no worker is granted a task that it may not have, and no task waits
// while a worker with room may take it. A plain model, which looks at every worker and every task,
// says what is allowed.
func TestMatchingAgainstAModel(t *testing.T) {
	t.Attr("rules", "W4 W12")
	histories.Play(t, func(t *testing.T, seed uint64) {
		run(t, func(r *rig) {
			m := &matchModel{
				rig: r, rand: rand.New(rand.NewPCG(seed, 0)), boundTo: map[string]boundWorker{},
				crowded: map[string]time.Time{},
			}
			for m.step = range 150 {
				m.act()
				m.check()
			}
			if m.granted < 10 {
				t.Errorf("%d grants in 150 steps, want at least 10: otherwise the test shows nothing", m.granted)
			}
		})
	})
}

type matchModel struct {
	*rig
	rand    *rand.Rand
	step    int
	crews   []*testSession
	seen    []int // how many grants of each crew were checked
	tasks   []lease.TaskID
	granted int
	paused  bool
	boundTo map[string]boundWorker // by sticky key
	crowded map[string]time.Time   // when a task that has waited long was last too large for each worker
	waited  []*lease.Task          // the tasks that were READY at the check before
}

// boundWorker is the worker that was last seen with a lease of a sticky key, and when that was. The
// key may have no binding any more if the engine was started since.
type boundWorker struct {
	worker  string
	last    time.Time
	started bool
}

func (m *matchModel) pickOne(of ...string) string { return of[m.rand.IntN(len(of))] }

func (m *matchModel) chance(percent int) bool { return m.rand.IntN(100) < percent }

// act does a random thing, and waits until the engine has handled it.
func (m *matchModel) act() {
	switch n := m.rand.IntN(100); {
	case n < 2, m.paused && n < 15:
		m.paused = !m.paused
		m.setQueue(func(s *lease.Settings) { s.Paused = m.paused })
	case n < 40 && len(m.tasks) < 40:
		m.tasks = append(m.tasks, m.submitWith(m.randomSpec))
	case n < 50 && len(m.crews) < 5:
		m.crews, m.seen = append(m.crews, m.worker(fmt.Sprint("w", m.step), 1+m.rand.IntN(3), m.randomWants)), append(m.seen, 0)
	case n < 55 && len(m.crews) > 0:
		i := m.rand.IntN(len(m.crews))
		m.Leave(m.crews[i].Member, m.chance(50))
		m.crews, m.seen = slices.Delete(m.crews, i, i+1), slices.Delete(m.seen, i, i+1)
	case n < 65 && len(m.crews) > 0:
		m.changeWants(m.crews[m.rand.IntN(len(m.crews))])
	case n < 67:
		m.restartAll()
	case n < 77:
		for range m.rand.IntN(20) { // in steps of a second, so that check acknowledges new grants in time
			time.Sleep(time.Second)
			m.check()
		}
	case len(m.crews) > 0:
		m.finish(m.crews[m.rand.IntN(len(m.crews))])
	}
}

// randomSpec gives a task a random type, priority and size, and random requirements, keys and pins.
func (m *matchModel) randomSpec(s *lease.Spec) {
	s.Type, s.Priority = m.pickOne("a", "b", "c"), int32(m.rand.IntN(3))
	s.Payload = make([]byte, m.rand.IntN(80))
	if m.chance(30) {
		s.Requirements = &lease.Requirements{Features: []string{m.pickOne("x", "y")}}
	}
	if m.chance(20) {
		s.ConcurrencyKey, s.ConcurrencyLimit = m.pickOne("k1", "k2"), 100
	}
	if m.chance(20) {
		s.FairnessKey = m.pickOne("f1", "f2")
	}
	switch worker := m.anyWorker(); {
	case m.chance(15) && worker != "":
		s.ResourceRefs = []lease.ResourceRef{{ResourceID: "r", Worker: worker}}
	case m.chance(30):
		key := m.pickOne("sticky1", "sticky2", "preferred1", "preferred2")
		s.Affinity = &lease.Affinity{Key: key, Mode: lease.Sticky, TTL: 30 * time.Second}
		if key[0] == 'p' {
			s.Affinity.Mode = lease.Preferred
		}
	}
}

func (m *matchModel) anyWorker() string {
	if len(m.crews) == 0 {
		return ""
	}
	return m.crews[m.rand.IntN(len(m.crews))].Wants.Worker
}

// randomWants gives a worker random types, limits and features.
func (m *matchModel) randomWants(w *Wants) {
	w.Types, w.TypeLimits, w.MaxBytes, w.SingleFlight = nil, nil, 0, m.chance(30)
	w.Capabilities.Features = nil
	for _, f := range []string{"x", "y"} {
		if m.chance(50) {
			w.Capabilities.Features = append(w.Capabilities.Features, f)
		}
	}
	if m.chance(30) {
		w.Types = []string{m.pickOne("a", "b"), "c"}
	}
	if m.chance(30) {
		w.TypeLimits = map[string]uint32{m.pickOne("a", "b", "c"): m.rand.Uint32N(2)}
	}
	if m.chance(30) {
		w.MaxBytes = 100
	}
}

func (m *matchModel) changeWants(c *testSession) {
	slots := m.rand.IntN(4)
	if m.chance(50) {
		m.randomWants(&c.Wants)
		m.Update(c.Member, c.Wants, slots)
	} else {
		m.Resize(c.Member, slots)
	}
	c.Slots = slots
}

// restartAll kills the engine; each worker comes back with the same wants and slots.
func (m *matchModel) restartAll() {
	m.kill()
	for key, b := range m.boundTo {
		b.started = true
		m.boundTo[key] = b
	}
	for i, c := range m.crews {
		m.crews[i], m.seen[i] = m.joinFor(c.Wants, c.Slots), 0
	}
}

func (m *matchModel) finish(c *testSession) {
	for _, g := range slices.Clone(c.grants()) {
		if held := m.version(g.Task.ID); held != nil && held.Lease != nil && held.Lease.Attempt == g.Task.Lease.Attempt && m.chance(70) {
			kind := lease.KindComplete
			if m.chance(20) {
				kind = lease.KindRelease
			}
			m.sayBy(c.Session, kind, g)
		}
	}
}

// check compares the engine's state with what the model allows.
func (m *matchModel) check() {
	m.Helper()
	synctest.Wait() // for leases that expire now
	for i, c := range m.crews {
		m.Heard(home.Tenant, c.Session) // it acknowledges their end
		for _, g := range c.grants()[m.seen[i]:] {
			m.sayBy(c.Session, lease.KindStart, g)
		}
	}
	live := onLoop(m.rig, func() (live []*lease.Task) {
		for _, id := range m.tasks {
			if t := m.set.task(id); t != nil && !t.State().Final() {
				live = append(live, t)
			}
		}
		return live
	})
	m.tasks = m.tasks[:0]
	for _, t := range live {
		m.tasks = append(m.tasks, t.ID)
	}
	m.recordCrowded(live)
	m.recordBindings(live)
	for i, c := range m.crews {
		for _, g := range c.grants()[m.seen[i]:] {
			m.checkGrant(c, g.Task, live)
			m.granted++
		}
		m.seen[i] = len(c.grants())
	}
	for _, t := range live {
		if t.State() == lease.Ready && !m.paused {
			m.checkWaiting(t, live)
		}
	}
	if m.Failed() {
		m.FailNow()
	}
}

// recordBindings records which worker holds each sticky key. It fails if two workers have leases of
// one key.
func (m *matchModel) recordBindings(live []*lease.Task) {
	seen := map[string]string{}
	for _, t := range live {
		if t.Lease == nil || t.Spec.Affinity == nil || t.Spec.Pinned() != "" || t.Spec.Affinity.Mode != lease.Sticky {
			continue
		}
		key := t.Spec.Affinity.Key
		if other, ok := seen[key]; ok && other != t.Lease.Worker {
			m.Errorf("step %d: the workers %s and %s have leases of the sticky key %s, want one worker only",
				m.step, other, t.Lease.Worker, key)
		}
		seen[key] = t.Lease.Worker
		m.boundTo[key] = boundWorker{worker: t.Lease.Worker, last: time.Now()}
	}
}

// heldBy returns the tasks whose live lease is with the worker.
func heldBy(worker string, live []*lease.Task) (held []*lease.Task) {
	for _, t := range live {
		if t.Lease != nil && t.Lease.Worker == worker {
			held = append(held, t)
		}
	}
	return held
}

const tooManyBytes = "it holds too many bytes"

// objection says why a worker may not have a task in addition to those that it holds; empty if it
// may.
func objection(w *Wants, t *lease.Task, held []*lease.Task) string {
	bytes, ofType := t.Spec.Size, 0
	for _, h := range held {
		bytes += h.Spec.Size
		if h.Spec.Type == t.Spec.Type {
			ofType++
		}
		if w.SingleFlight && h.Spec.ConcurrencyKey != "" && h.Spec.ConcurrencyKey == t.Spec.ConcurrencyKey {
			return "it runs the key"
		}
	}
	limit, limited := w.TypeLimits[t.Spec.Type]
	switch {
	case len(w.Types) > 0 && !slices.Contains(w.Types, t.Spec.Type):
		return "it does not handle the type"
	case t.Spec.Requirements != nil && !slices.Contains(w.Capabilities.Features, t.Spec.Requirements.Features[0]):
		return "it lacks what is required"
	case t.Spec.Pinned() != "" && t.Spec.Pinned() != w.Worker:
		return "the task is pinned to another"
	case limited && ofType >= int(limit):
		return "it has enough of the type"
	case w.MaxBytes > 0 && len(held) > 0 && bytes > int(w.MaxBytes):
		return tooManyBytes
	}
	return ""
}

func (m *matchModel) checkGrant(c *testSession, t *lease.Task, live []*lease.Task) {
	var others []*lease.Task
	for _, h := range heldBy(c.Wants.Worker, live) {
		if h.ID != t.ID {
			others = append(others, h)
		}
	}
	if why := objection(&c.Wants, t, others); why != "" {
		m.Errorf("step %d: worker %s was granted task %v, which it may not have: %s", m.step, c.Wants.Worker, t.ID, why)
	}
}

// recordCrowded records which workers have no room for the data of a task that has waited long.
// Such a worker may make room for it, for a moment longer than it has to, and no other worker may.
// It may have begun to before another worker got the task, since the check before.
func (m *matchModel) recordCrowded(live []*lease.Task) {
	ready := slices.DeleteFunc(slices.Clone(live), func(t *lease.Task) bool { return t.State() != lease.Ready })
	for _, c := range m.crews {
		w := c.Wants.Worker
		for _, t := range slices.Concat(ready, m.waited) {
			bound, _ := m.boundElsewhere(t, w)
			if objection(&c.Wants, t, heldBy(w, live)) == tooManyBytes && !bound &&
				m.Now().Serving.Sub(t.ReadyAt) >= passedFor {
				m.crowded[w] = time.Now()
			}
		}
		if m.makesRoom(c) && time.Since(m.crowded[w]) > roomFor {
			m.Errorf("step %d: worker %s makes room for no task", m.step, w)
		}
	}
	m.waited = ready
}

func (m *matchModel) makesRoom(c *testSession) bool {
	return onLoop(m.rig, func() bool { return m.sessions.find(c.Session).makesRoom != nil })
}

// checkWaiting fails if a task waits that a worker with room may take.
func (m *matchModel) checkWaiting(t *lease.Task, live []*lease.Task) {
	for _, c := range m.crews {
		held := heldBy(c.Wants.Worker, live)
		_, bound := m.boundElsewhere(t, c.Wants.Worker)
		if len(held) >= c.Slots || objection(&c.Wants, t, held) != "" || bound || m.makesRoom(c) {
			continue
		}
		m.Errorf("step %d: task %v of type %s waits, but worker %s has room and may take it",
			m.step, t.ID, t.Spec.Type, c.Wants.Worker)
	}
}

// boundElsewhere reports whether the sticky key of a task is bound to another worker: for sure, or
// perhaps, since the model does not know the exact end of a binding.
func (m *matchModel) boundElsewhere(t *lease.Task, worker string) (sure, perhaps bool) {
	a := t.Spec.Affinity
	if a == nil || t.Spec.Pinned() != "" || a.Mode != lease.Sticky {
		return false, false
	}
	b, known := m.boundTo[a.Key]
	if !known || b.worker == worker {
		return false, false
	}
	since := time.Since(b.last)
	return since < a.TTL && !b.started, since < a.TTL+20*time.Second
}

// T12: a queue in which many different requirements or types wait has a short turn. Each of its
// grants looks at all of them, so 64 grants would hold up all others for seconds. The queue has all
// its tasks granted in the end.
func TestTurnOfAQueueWithManyPoolsIsShort(t *testing.T) {
	t.Attr("rules", "T12")
	const pools = 500
	for name, differ := range map[string]func(*lease.Spec, int){
		"requirements": func(s *lease.Spec, i int) {
			s.Requirements = &lease.Requirements{Resources: map[string]float64{"mem": float64(i)}}
		},
		"types": func(s *lease.Spec, i int) { s.Type = fmt.Sprint(i) },
	} {
		t.Run(name, func(t *testing.T) {
			bound(t, 100, &triesPerTurn)
			h := newManualEngine(t, 1, pools)
			for w := range h.workers.takers {
				w.wants.Capabilities.Resources = map[string]float64{"mem": pools}
			}
			specs, digests := h.specs(pools)
			for i, s := range specs {
				differ(s, i+1)
			}
			h.submitSpecs(specs, digests)
			q := h.spaces.named(home).queues["q"]
			tries := h.effort.tried
			if h.matchQueue(q) || h.set.live == 0 || h.set.live > 5 {
				t.Errorf("one turn of the queue has granted %d tasks, want a few, and that it goes on", h.set.live)
			}
			if n := h.effort.tried - tries; n > 3*triesPerTurn {
				t.Errorf("one turn counts as %d tries, want about %d", n, triesPerTurn)
			}
			for !h.matchQueue(q) {
			}
			if h.set.live != pools {
				t.Errorf("%d of %d tasks were granted", h.set.live, pools)
			}
		})
	}
}

// T12: the types that a worker lists count as looked at, also those of which no task waits: there
// may be many such workers.
func TestListedTypesCountAsLookedAt(t *testing.T) {
	t.Attr("rules", "T12")
	const types = 500
	h := newManualEngine(t, 1, 1)
	for w := range h.workers.takers {
		w.wants.Types = make([]string, types)
		tries := h.effort.tried
		h.search.poolsFor(w.queues[0], w)
		if n := h.effort.tried - tries; n != types/looksPerTry {
			t.Errorf("a look for tasks of %d types counts as %d tries, want %d", types, n, types/looksPerTry)
		}
	}
}

// T12: before another worker gets a task of a PREFERRED key, all sessions of the key's own worker
// are looked at. There may be many, and they count.
func TestSessionsOfThePreferredWorkerCountAsLookedAt(t *testing.T) {
	t.Attr("rules", "T12 W12")
	const sessions = 1600
	h := newManualEngine(t, 1, 1)
	own := h.workers.obtain(workerKey{home.Tenant, "own"})
	for range sessions {
		own.takers[newTaker(Wants{Space: home, Worker: "own"}, 0)] = struct{}{}
	}
	h.spaces.obtain(home).bindings["k"] = &binding{worker: "own", sticky: true}
	q := h.submitKey(1)
	other := q.available.Front().Value.(*taker)
	tries := h.effort.tried
	if pools := h.search.poolsFor(q, other); len(pools) != 1 || h.effort.tried-tries != sessions/looksPerTry {
		t.Errorf("%d pools were found in %d tries, want 1 pool in %d tries",
			len(pools), h.effort.tried-tries, sessions/looksPerTry)
	}
	other.wants.Types = []string{"another"}
	tries = h.effort.tried
	if pools := h.search.poolsFor(q, other); len(pools) != 0 || h.effort.tried != tries {
		t.Errorf("%d pools were found in %d tries for a worker that does not take the type, want none in none",
			len(pools), h.effort.tried-tries)
	}
}

// W4: a worker may list its types in any order.
func TestTypesInAnyOrder(t *testing.T) {
	t.Attr("rules", "W4")
	run(t, func(r *rig) {
		wants := Wants{Space: home, Worker: "w", Queues: []string{"q"}, Types: []string{"c", "a", "b"}}
		submit := func(types ...string) {
			for _, typ := range types {
				spec := work()
				spec.Type = typ
				r.submit(spec)
			}
		}
		c := r.joinFor(wants, 10)
		submit("a", "b", "c", "d")
		if n := len(c.grants()); n != 3 {
			t.Errorf("%d tasks were granted, want 3", n)
		}
		wants.Types = []string{"d", "c", "a"}
		r.Update(c.Member, wants, 10)
		submit("a", "b", "c", "d")
		if n := len(c.grants()); n != 7 {
			t.Errorf("%d tasks were granted, want 7: after the change c, a and twice d", n)
		}
	})
}

// T12: a worker whose bytes are used up passes over the tasks of many fairness keys, but not over
// all: there may be a million. The tasks count as tried, so that with many such workers the turn
// ends.
func TestSearchForATaskThatFitsEnds(t *testing.T) {
	t.Attr("rules", "T12")
	const keys = 1000
	bound(t, 100, &mostSearched)
	h := newManualEngine(t, 1, keys)
	for w := range h.workers.takers {
		w.wants.MaxBytes = 300
	}
	specs, digests := h.specs(keys)
	for i, s := range specs {
		s.FairnessKey = fmt.Sprint(i)
	}
	h.submitSpecs(specs, digests)
	tries := h.effort.tried
	h.match()
	if n := h.effort.tried - tries; n < mostSearched || n > 2*mostSearched {
		t.Errorf("a search among the tasks of %d fairness keys counts as %d tries, want about %d", keys, n, mostSearched)
	}
	if h.set.live != 1 {
		t.Errorf("%d tasks were granted, want 1: the next one would be too large beside it", h.set.live)
	}
}

// T12: so does the search among the tasks of one fairness key that have many types. But the first
// task of each type is looked at, and taken if it fits.
func TestSearchForATaskThatFitsAmongManyTypesEnds(t *testing.T) {
	t.Attr("rules", "T12 W4")
	const types, of = 100, 20
	bound(t, 100, &mostSearched)
	h := newManualEngine(t, 1, 2)
	q := h.spaces.named(home).queues["q"]
	worker := q.available.Front().Value.(*taker)
	h.submitKey(1)
	h.matchAll()
	worker.wants.MaxBytes = 300
	h.recountUsage(worker)
	submit := func(tasks int, payload []byte) {
		specs, digests := h.specs(tasks)
		for i, s := range specs {
			s.Type = fmt.Sprint(i % types)
			if len(payload) > 0 {
				s.Type, s.Payload = "fits", payload
			}
			if err := s.Fill(lease.DefaultLimits()); err != nil {
				t.Fatal(err)
			}
		}
		h.submitSpecs(specs, digests)
	}
	submit(types*of, nil)
	tries := h.effort.tried
	h.match()
	if n := h.effort.tried - tries; n < mostSearched || n > 2*mostSearched+types {
		t.Errorf("a search among the tasks of %d types counts as %d tries, want about %d and one for each type",
			types, n, mostSearched)
	}
	submit(1, make([]byte, 1))
	h.match()
	if len(worker.leases) != 2 {
		t.Errorf("the worker has %d leases, want also the task that fits", len(worker.leases))
	}
}

// T12: so does the search that finds out whether the worker of a PREFERRED key has room for one of
// its tasks, in however many pools these are.
func TestSearchForAPreferredTaskThatFitsEnds(t *testing.T) {
	t.Attr("rules", "T12 W12")
	for _, test := range []struct{ types, keys, tasks int }{{1, 1000, 1000}, {50, 2, 5000}} {
		t.Run(fmt.Sprintf("%d types", test.types), func(t *testing.T) {
			bound(t, 100, &mostSearched)
			h := newManualEngine(t, 2, 2)
			q := h.spaces.named(home).queues["q"]
			own, other := q.available.Front().Value.(*taker), q.available.Back().Value.(*taker)
			other.wants.Types = []string{"none"}
			h.submitKey(1)
			h.matchAll()
			own.wants.MaxBytes = 300
			h.recountUsage(own)
			other.wants.Types = nil
			specs, digests := h.specs(test.tasks)
			for i, s := range specs {
				s.Type, s.FairnessKey = fmt.Sprint(i%test.types), fmt.Sprint(i/test.types%test.keys)
				s.Affinity = &lease.Affinity{Key: "k", Mode: lease.Preferred, TTL: time.Minute}
			}
			h.submitSpecs(specs, digests)
			tries := h.effort.tried
			h.match()
			if len(own.leases) != 1 || len(other.leases) != 2 {
				t.Errorf("the key's worker has %d leases, and the other one %d, want 1 and 2: the next task would be too large beside the first", len(own.leases), len(other.leases))
			}
			if n := h.effort.tried - tries; n > 20*mostSearched {
				t.Errorf("two grants count as %d tries, want some searches of about %d", n, mostSearched)
			}
		})
	}
}

// T12: many takers, and many requirements that none of them meets: a turn does not look at all of
// them, the next one goes on where it has ended. A task that comes meanwhile for a taker at which
// the turns have looked already goes to that taker. When all takers were looked at, matching comes
// to rest.
func TestTurnGoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Attr("rules", "T12")
	const takers, pools = 40, 160
	bound(t, 100, &triesPerTurn)
	h := newManualEngine(t, takers, 1)
	q := h.spaces.named(home).queues["q"]
	submit := func(n int, r lease.Requirements) {
		specs, digests := h.specs(n)
		for i, s := range specs {
			required := r
			required.Runtimes = append([]string{}, r.Runtimes...)
			if len(r.Runtimes) == 0 {
				required.Runtimes = []string{fmt.Sprint(i)}
			}
			s.Requirements = &required
		}
		h.submitSpecs(specs, digests)
	}
	first, last := q.available.Front().Value.(*taker), q.available.Back().Value.(*taker)
	first.wants.Capabilities.Runtimes, last.wants.Capabilities.Runtimes = []string{"first"}, []string{"last"}
	submit(pools, lease.Requirements{})
	submit(1, lease.Requirements{Runtimes: []string{"last"}})
	rounds := 0
	for ; !h.agenda.empty() && rounds < 100; rounds++ {
		tries := h.effort.tried
		h.match()
		if n := h.effort.tried - tries; n > 2*triesPerTurn {
			t.Errorf("a round has made %d tries, want about %d", n, triesPerTurn)
		}
		if rounds == 1 {
			submit(1, lease.Requirements{Runtimes: []string{"first"}})
		}
	}
	if rounds < 4 || rounds == 100 {
		t.Errorf("matching came to rest after %d rounds, want some", rounds)
	}
	if len(first.leases) != 1 || len(last.leases) != 1 {
		t.Errorf("the first taker has %d leases, and the last one %d, want one each", len(first.leases), len(last.leases))
	}
}

// T12: the tasks of a PREFERRED key that have many types are in as many pools, and all of these
// count as looked at.
func TestTurnOfAQueueWithManyPreferredPoolsIsShort(t *testing.T) {
	t.Attr("rules", "T12 W12")
	const pools = 500
	bound(t, 100, &triesPerTurn)
	h := newManualEngine(t, 1, pools+1)
	q := h.submitKey(1)
	h.match() // binds the key to the worker
	h.submitKey(pools)
	tries, live := h.effort.tried, h.set.live
	if h.matchQueue(q) || h.set.live == live || h.set.live > live+5 {
		t.Errorf("one turn of the queue has granted %d tasks, want a few, and that it goes on", h.set.live-live)
	}
	if n := h.effort.tried - tries; n > 3*triesPerTurn {
		t.Errorf("one turn counts as %d tries, want about %d", n, triesPerTurn)
	}
	for !h.matchQueue(q) {
	}
	if h.set.live != pools+1 {
		t.Errorf("%d of %d tasks were granted", h.set.live, pools+1)
	}
}

// T12: the tasks of a fairness key may be in many pools, of other types or pinned to other workers.
// Its turns do not move all of them, but a higher weight does, since it makes the next turn begin
// earlier.
func TestTurnOfAKeyWithManyPoolsMovesFew(t *testing.T) {
	t.Attr("rules", "T12")
	const pools, grants = 500, 3
	h := newManualEngine(t, 1, grants)
	for w := range h.workers.takers {
		w.wants.Types = []string{"0"}
	}
	specs, digests := h.specs(pools + grants)
	for i, s := range specs {
		s.Type = fmt.Sprint(max(i-grants, 0))
	}
	specs[pools].FairnessKey = "other"
	h.submitSpecs(specs, digests)
	q, moved := h.spaces.named(home).queues["q"], 0
	f := q.flows[""]
	before := f.begin
	h.match()
	for _, up := range f.pools {
		if up.begin != before {
			moved++
		}
	}
	if h.set.live != grants || moved == 0 || moved > grants*(movesAtOnce+1) {
		t.Errorf("%d grants have moved %d of %d lineups, want %d grants, and a few for each",
			h.set.live, moved, len(f.pools), grants)
	}
	for _, up := range f.pools {
		up.move()
	}
	q.reweigh(&lease.Settings{Weights: map[string]float64{"": 100}})
	for _, up := range f.pools {
		if up.begin != f.begin {
			t.Fatalf("after a new weight a lineup stands at %v, and the next turn begins at %v", up.begin, f.begin)
		}
	}
}

// T12: when many types and requirements have waited, the maps of their pools are made anew. To
// iterate over the old ones would take as long as before, for each grant.
func TestMapsOfManyPoolsShrink(t *testing.T) {
	t.Attr("rules", "T12")
	const types = 2000
	h := newManualEngine(t, 1, 1)
	specs, digests := h.specs(2 * types)
	for i, s := range specs {
		if s.Type = fmt.Sprint(i); i >= types {
			s.Requirements = &lease.Requirements{Runtimes: []string{s.Type}}
		}
	}
	h.submitSpecs(specs, digests)
	q := h.spaces.named(home).queues["q"]
	f := q.flows[""]
	first := specs[0].Type
	for id, entry := range maps.Clone(h.set.tasks) {
		if entry.task.Spec.Type != first {
			h.step(lease.Delete{Tenant: home.Tenant, Task: id})
		}
	}
	for name, most := range map[string]int{"plain": q.pools.mostPlain, "demanding": q.pools.mostDemanding, "of the flow": f.mostPools} {
		if most == 0 || most > types/4 {
			t.Errorf("the map of the pools that are %s has had %d entries, want a new one", name, most)
		}
	}
	if h.match(); h.set.live != 1 || len(f.pools) != 0 {
		t.Errorf("%d tasks were granted, and %d pools are left, want the task that was not deleted, and none",
			h.set.live, len(f.pools))
	}
}

// T12: a PREFERRED key follows its latest grant, and all its lines move with it, which takes a
// while if it has many. Then the turn of the queue ends.
func TestTurnInWhichAKeyWithManyLinesMovesIsShort(t *testing.T) {
	t.Attr("rules", "T12 W12")
	const takers, lines = 10, 500
	bound(t, 100, &triesPerTurn)
	h := newManualEngine(t, takers, 1)
	q := h.submitKey(lines)
	if h.matchQueue(q) || h.set.live != 1 {
		t.Errorf("one turn of the queue has granted %d tasks, want 1, and that it goes on", h.set.live)
	}
	for !h.matchQueue(q) {
	}
	if h.set.live != takers {
		t.Errorf("%d tasks were granted, want %d", h.set.live, takers)
	}
}

// submitKey submits n tasks of a PREFERRED key, each of another type, and returns their queue.
func (h *manualEngine) submitKey(n int) *queue {
	specs, digests := h.specs(n)
	for i, s := range specs {
		s.Type, s.Affinity = fmt.Sprint(i), &lease.Affinity{Key: "k", Mode: lease.Preferred, TTL: time.Minute}
	}
	h.submitSpecs(specs, digests)
	return h.spaces.named(home).queues["q"]
}

// W12: a turn has passed over a worker, because a PREFERRED task would go to its own one, and ends
// before it comes to that one. If that one has no more room when the turn goes on, the worker that
// was passed over gets the task.
func TestPreferredTaskIsNotLeftToAWorkerThatLosesItsRoomWithinATurn(t *testing.T) {
	t.Attr("rules", "W12")
	const pools = 160 // of tasks that nobody can take: to look at them ends a turn
	bound(t, 10, &triesPerTurn)
	for name, lose := range map[string]func(*manualEngine, *taker){
		"no slots": func(h *manualEngine, own *taker) { own.slots = 1; h.agenda.offer(own) },
		"gone":     func(h *manualEngine, own *taker) { h.depart(own.member.Session) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newManualEngine(t, 3, 2)
			q := h.spaces.named(home).queues["q"]
			first := q.available.Front()
			other, own, last := first.Value.(*taker), first.Next().Value.(*taker), first.Next().Next().Value.(*taker)
			other.wants.Types, last.wants.Types = []string{"none"}, []string{"none"}
			h.submitKey(1)
			h.matchAll()
			other.wants.Types = nil
			q.available.MoveToBack(last.placeIn[q])
			specs, digests := h.specs(pools)
			for i, s := range specs {
				s.Requirements = &lease.Requirements{Runtimes: []string{fmt.Sprint(i)}}
			}
			h.submitSpecs(specs, digests)
			h.matchAll()
			h.submitKey(1)
			h.match()
			if q.goOnAt == nil || q.goOnAt.Value != own || len(other.leases) != 0 {
				t.Fatalf("the turn has not ended before the key's worker; the other one has %d leases, want none",
					len(other.leases))
			}
			lose(h, own)
			h.matchAll()
			if len(other.leases) != 1 {
				t.Errorf("the other worker has %d leases, want 1", len(other.leases))
			}
		})
	}
}

// matchAll matches until nothing is left to be matched.
func (h *manualEngine) matchAll() {
	for !h.agenda.empty() {
		h.match()
	}
}
