package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// specWithKey returns the spec of a task with a concurrency key.
func specWithKey(key string, limit uint32) *lease.Spec {
	return &lease.Spec{Queue: "q", ConcurrencyKey: key, ConcurrencyLimit: limit}
}

// T11: the live leases of a concurrency key never exceed its limit. Tasks without a key or with
// another one are granted meanwhile. When a lease of the key ends, its next task is granted, in its
// old order.
func TestConcurrencyKeyBoundsLiveLeases(t *testing.T) {
	t.Attr("rules", "T2 T11")
	run(t, func(r *rig) {
		first := r.submit(specWithKey("disk", 2), specWithKey("disk", 2), specWithKey("disk", 2),
			specWithKey("disk", 2), specWithKey("other", 1), work())
		g := r.lease(10, 0)
		if got := sequencesOf(g); got != fmt.Sprint(first[0].ID.Seq, first[1].ID.Seq, first[4].ID.Seq, first[5].ID.Seq) {
			r.Fatalf("leased tasks %s, want the first two of key disk, the one of key other and the one without a key", got)
		}
		if q := r.queueInfo(); q.Ready != 2 || q.Parked != 2 || q.Leased != 4 {
			r.Errorf("the queue has %d READY, %d parked and %d leased tasks, want 2, 2 and 4", q.Ready, q.Parked, q.Leased)
		}
		for i, next := range first[2:4] {
			r.want(r.say(lease.KindComplete, g[i]), lease.VerdictCommitted, lease.None)
			if more := r.lease(10, 0); len(more) != 1 || more[0].Task.ID != next.ID {
				r.Fatalf("after %d completes: leased tasks %s, want task %d", i+1, sequencesOf(more), next.ID.Seq)
			}
		}
	})
}

func sequencesOf(g []Granted) string {
	all := make([]any, len(g))
	for i := range g {
		all[i] = g[i].Task.ID.Seq
	}
	return fmt.Sprint(all...)
}

func (r *rig) queueInfo() QueueInfo {
	r.Helper()
	q, found, err := r.Queue(r.Context(), home, "q", 0)
	if err != nil || !found {
		r.Fatalf("queue q: found %v, %v", found, err)
	}
	return q
}

// T11: whatever ends a lease, the next task of the key can then be leased, also if somebody cancels
// the task that was next.
func TestConcurrencyKeyIsFreedHoweverALeaseEnds(t *testing.T) {
	t.Attr("rules", "T11")
	for name, end := range map[string]func(r *rig, g Granted){
		"completed": func(r *rig, g Granted) { r.say(lease.KindComplete, g) },
		"failed":    func(r *rig, g Granted) { r.say(lease.KindFail, g) },
		"expired":   func(*rig, Granted) { time.Sleep(lease.DefaultHeartbeatTimeout) },
		"deleted": func(r *rig, g Granted) {
			if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: g.Task.ID, Force: true}); err != nil {
				r.Error(err)
			}
		},
		"cancelled": func(r *rig, g Granted) {
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: g.Task.ID}); err != nil {
				r.Error(err)
			}
			if early := r.lease(3, 0); len(early) != 0 {
				r.Errorf("leased %s while the first is CANCELLING, want none: its lease is live (T7)", sequencesOf(early))
			}
			r.say(lease.KindFail, g)
		},
		"the next one is cancelled": func(r *rig, g Granted) {
			next := lease.TaskID{Space: g.Task.ID.Space, Seq: g.Task.ID.Seq + 1}
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: next}); err != nil {
				r.Error(err)
			}
			r.say(lease.KindComplete, g)
		},
		"the next one is cancelled after it was unparked": func(r *rig, g Granted) {
			r.say(lease.KindComplete, g)
			next := lease.TaskID{Space: g.Task.ID.Space, Seq: g.Task.ID.Seq + 1}
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: next}); err != nil {
				r.Error(err)
			}
		},
		"recovered":      func(r *rig, _ Granted) { r.restart(Config{Recovery: InvalidateLeases}) },
		"after a kill":   func(r *rig, g Granted) { r.kill(); r.say(lease.KindComplete, g) },
		"before a kill":  func(r *rig, g Granted) { r.say(lease.KindComplete, g); r.kill() },
		"a worker quits": func(r *rig, g Granted) { r.say(lease.KindRelease, g) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.submit(specWithKey("k", 1), specWithKey("k", 1), specWithKey("k", 1))
				g := r.lease(3, 0)
				if len(g) != 1 {
					r.Fatalf("leased %d tasks at once, want 1: the limit of the key", len(g))
				}
				r.say(lease.KindStart, g[0])
				end(r, g[0])
				if g := r.lease(3, time.Minute); len(g) != 1 {
					r.Errorf("leased %d after the lease ended, want 1", len(g))
				}
			})
		})
	}
}

// T11: tasks of one key but of different types wait in different lines. A task that no taker wants
// does not prevent the grant of the others.
func TestParkedTaskThatNobodyTakesDoesNotHoldTheKey(t *testing.T) {
	t.Attr("rules", "T11")
	run(t, func(r *rig) {
		spec := func(typ string) *lease.Spec { return &lease.Spec{Queue: "q", Type: typ, ConcurrencyKey: "k"} }
		r.submit(spec("common"), spec("rare"), spec("common"))
		first := r.lease(1, 0)
		c := r.joinFor(Wants{Space: home, Worker: "c", Queues: []string{"q"}, Types: []string{"common", "rare"}}, 5)
		if n := len(c.grants()); n != 0 {
			r.Fatalf("%d grants while another worker holds the key, want 0", n)
		}
		r.say(lease.KindComplete, first[0])
		if g := c.grants(); len(g) != 1 || g[0].Task.Spec.Type != "rare" {
			r.Fatalf("after the first complete: granted tasks %s, want the one of type rare", sequencesOf(g))
		}
		r.say(lease.KindComplete, c.grants()[0])
		if g := c.grants(); len(g) != 2 || g[1].Task.Spec.Type != "common" {
			r.Fatalf("after the second complete: granted tasks %s, want the one of type rare and then the second one of type common", sequencesOf(g))
		}
	})
	run(t, func(r *rig) { // here nobody takes type "rare", which stands before the second "common"
		spec := func(typ string) *lease.Spec { return &lease.Spec{Queue: "q", Type: typ, ConcurrencyKey: "k"} }
		r.submit(spec("common"), spec("rare"), spec("common"))
		g := r.lease(3, 0)
		c := r.joinFor(Wants{Space: home, Worker: "c", Queues: []string{"q"}, Types: []string{"common"}}, 5)
		r.say(lease.KindComplete, g[0])
		if g := c.grants(); len(g) != 1 || g[0].Task.Spec.Type != "common" {
			r.Fatalf("granted tasks %s, want the second one of type common", sequencesOf(g))
		}
	})
}

// T11: at a start, parked tasks whose key has room become READY, even if the task that held the key
// is missing from the store.
func TestStartUnparksTasksWhoseKeyHasRoom(t *testing.T) {
	t.Attr("rules", "T11")
	run(t, func(r *rig) {
		r.submit(specWithKey("k", 1), specWithKey("k", 1))
		holder := r.lease(2, 0)[0].Task.ID
		r.shutDown()
		var b store.Batch
		for _, ks := range []store.Keyspace{store.Lease, store.Task, store.Spec} {
			b.Delete(ks, store.AppendTaskKey(nil, holder))
		}
		if err := r.st.Commit(r.Context(), &b); err != nil {
			r.Fatal(err)
		}
		r.start(Config{})
		if g := r.lease(2, 0); len(g) != 1 || g[0].Task.ID == holder {
			r.Errorf("leased tasks %s, want the one that was parked", sequencesOf(g))
		}
	})
}

// T11: the smallest limit counts only while a task that has this limit holds the key.
func TestSmallestLimitCountsOnlyWhileItsTaskHoldsTheKey(t *testing.T) {
	t.Attr("rules", "T11")
	run(t, func(r *rig) {
		r.submit(specWithKey("k", 2), specWithKey("k", 3), specWithKey("k", 3), specWithKey("k", 3))
		g := r.lease(4, 0)
		if len(g) != 2 {
			r.Fatalf("leased tasks %s, want the first two", sequencesOf(g))
		}
		r.say(lease.KindComplete, g[0])
		// the first call gets one, and its grant unparks the other
		if g := append(r.lease(4, 0), r.lease(4, 0)...); len(g) != 2 {
			r.Errorf("leased tasks %s after the task of limit 2 ended, want the other two", sequencesOf(g))
		}
	})
}

// T2, T11: tasks of one key in one line are granted in order, whatever limits they have. Among
// tasks with limit 2, neither a task with limit 1 nor the one behind it is overtaken for ever.
func TestSmallerLimitIsNotOvertakenForEver(t *testing.T) {
	t.Attr("rules", "T2 T11")
	run(t, func(r *rig) {
		r.submit(specWithKey("k", 2), specWithKey("k", 2))
		live := r.lease(2, 0)
		alone, behind := r.submit(specWithKey("k", 1))[0].ID, r.submit(specWithKey("k", 2))[0].ID
		r.lease(2, 0) // parks both
		var order []lease.TaskID
		for range 10 {
			r.submit(specWithKey("k", 2))
			r.want(r.say(lease.KindComplete, live[0]), lease.VerdictCommitted, lease.None)
			live = live[1:]
			for _, g := range r.lease(5, 0) {
				live, order = append(live, g), append(order, g.Task.ID)
			}
		}
		if len(order) < 3 || order[0] != alone || order[1] != behind {
			r.Errorf("granted in the order %v, want %v and then %v first", order, alone, behind)
		}
	})
}

// T2, T11: tasks of one key are parked, at times far more than memory holds, and new ones come
// while leases of the key end. However many leases end at once, no task overtakes an earlier one.
func TestNewTaskOvertakesNoParkedTask(t *testing.T) {
	t.Attr("rules", "T2 T11")
	small(t)
	run(t, func(r *rig) {
		const limit = 3
		rng := rand.New(rand.NewPCG(1, 1))
		var workers []*testSession
		// so that workers with room are there while the key has none, and the tasks are parked
		for n := range 2 * limit {
			workers = append(workers, r.joinFor(Wants{Space: home, Worker: fmt.Sprint(n), Queues: []string{"q"}}, 1))
		}
		number, ended := map[lease.TaskID]int{}, map[lease.TaskID]bool{} // number in the order of submit
		for round, most := 0, 2*limit; round < 300; round++ {
			var reports []*lease.Report
			granted, last, ends := 0, 0, rng.IntN(limit+1)
			for _, w := range workers {
				for _, g := range w.grants() {
					granted, last = granted+1, max(last, number[g.Task.ID])
					if !ended[g.Task.ID] && len(reports) < ends {
						ended[g.Task.ID] = true
						reports = append(reports,
							&lease.Report{Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID})
					}
				}
			}
			if granted != last {
				r.Fatalf("round %d: %d tasks were granted, and the last of them is number %d", round, granted, last)
			}
			switch wait := len(number) - granted; {
			case wait > 5*parkedHead:
				most = 2 // until all are granted
			case wait == 0:
				most = 2 * limit
			}
			specs := make([]*lease.Spec, rng.IntN(most))
			for i := range specs {
				specs[i] = specWithKey("k", limit)
				if err := specs[i].Fill(lease.DefaultLimits()); err != nil {
					r.Fatal(err)
				}
			}
			// all in one batch, so that the new tasks are there when the key gets room
			made := onLoop(r, func() []lease.Submitted {
				r.judge(home.Tenant, reports)
				return r.Engine.submit(home, specs, make([]lease.Digest, len(specs))).Submitted
			})
			for _, m := range made {
				number[m.Task.ID] = len(number) + 1
			}
		}
	})
}

// T2, T11: nor does a new task overtake a parked one that is only in the store, when those in
// memory have come back or were cancelled.
func TestNewTaskOvertakesNoParkedTaskInTheStore(t *testing.T) {
	t.Attr("rules", "T2 T11")
	bound(t, 2, &parkedHead)
	run(t, func(r *rig) {
		const limit = 2
		resize := func(w *testSession, slots int) {
			r.Helper()
			r.Resize(w.Member, slots)
		}
		w, _ := r.join("i", 10)
		var tasks []*lease.Task // two are leased, two are parked in memory, and the fifth is parked in the store
		for range 5 {
			tasks = append(tasks, r.submit(specWithKey("k", limit))...)
		}
		resize(w, 0)
		tasks = append(tasks, r.submit(specWithKey("k", limit))...)
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: tasks[3].ID}); err != nil {
			r.Fatal(err)
		}
		var ends []*lease.Report
		for _, g := range w.grants() {
			ends = append(ends, &lease.Report{Kind: lease.KindComplete, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID})
		}
		// both at once, so that only the first parked task comes back
		if _, err := r.Judge(r.Context(), home.Tenant, ends); err != nil {
			r.Fatal(err)
		}
		resize(w, 10)
		want := fmt.Sprint(tasks[0].ID.Seq, tasks[1].ID.Seq, tasks[2].ID.Seq, tasks[4].ID.Seq)
		if got := sequencesOf(w.grants()); got != want {
			r.Errorf("granted tasks %s, want %s: all but the cancelled one and the newest, in order", got, want)
		}
	})
}

// T11: if the tasks of a line that are parked under a key have ended, also those that were only in
// the store, nothing of the line stays under the key. The engine finds that out when it is about to
// grant the next task of the line, even if that task does not get as far as being parked itself.
func TestLineWithoutParkedTasksIsForgotten(t *testing.T) {
	t.Attr("rules", "T11")
	bound(t, 2, &parkedHead)
	run(t, func(r *rig) {
		spec := func() *lease.Spec {
			s := specWithKey("k", 1)
			s.ResourceRefs = []lease.ResourceRef{{ResourceID: "r", Worker: "w"}}
			return s
		}
		pause := func(paused bool) {
			if _, err := r.UpdateQueue(r.Context(), home, "q", func(s *lease.Settings) { s.Paused = paused }); err != nil {
				r.Error(err)
			}
		}
		tasks := r.submit(spec(), spec(), spec(), spec())
		r.lease(4, 0)
		parked := r.queueInfo().Parked
		for _, task := range tasks[1:] {
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: task.ID}); err != nil {
				r.Fatal(err)
			}
		}
		pause(true)
		next := spec()
		next.Deadline = lease.WallOf(time.Now().Add(time.Second))
		r.submit(next)

		// while a commit is slow, timers wait, so that the grant finds that the deadline has passed
		release := r.holdCommit()
		var calls sync.WaitGroup
		calls.Go(func() { submitOne(r) })
		time.Sleep(2 * SlowCommit)
		calls.Go(func() { pause(false) })
		synctest.Wait()
		calls.Go(func() { r.lease(1, 0) })
		synctest.Wait()
		release()
		calls.Wait()
		if q := r.queueInfo(); parked != 3 || q.Parked != 0 {
			r.Errorf("%d tasks were parked, and now %d are; want 3, and none", parked, q.Parked)
		}
		r.consistent()
	})
}

// T2, T11: 3*parkedHead tasks wait for one key. A task without the key is granted before them. They
// are granted one by one and in order, also after restarts. At the end the engine has nothing of
// the key in memory.
func TestManyParkedTasksAreGrantedInOrder(t *testing.T) {
	t.Attr("rules", "T2 T11")
	run(t, func(r *rig) {
		n := 3 * parkedHead
		for range n / 256 {
			specs := make([]*lease.Spec, 256)
			for i := range specs {
				specs[i] = specWithKey("k", 1)
			}
			r.submit(specs...)
		}
		free := r.submit(work())[0]
		g := r.lease(2, 0)
		if len(g) != 2 || g[1].Task.ID != free.ID {
			r.Fatalf("leased tasks %s, want the first one and the one without a key", sequencesOf(g))
		}
		next := g[0]
		for i := range n {
			if i%100 == 50 {
				r.restart(Config{})
			}
			r.want(r.say(lease.KindComplete, next), lease.VerdictCommitted, lease.None)
			g := r.lease(5, 0)
			if i == n-1 {
				if len(g) != 0 {
					r.Fatalf("leased %d tasks after all of the key were done, want 0", len(g))
				}
				break
			}
			if len(g) != 1 || g[0].Task.ID.Seq <= next.Task.ID.Seq {
				r.Fatalf("after %d completes: leased tasks %s, want one that follows task %d",
					i+1, sequencesOf(g), next.Task.ID.Seq)
			}
			next = g[0]
		}
		if q := r.queueInfo(); q.Ready != 0 || q.Parked != 0 || q.Leased != 1 {
			r.Errorf("the queue has %d READY, %d parked and %d leased tasks, want 0, 0 and the one without a key",
				q.Ready, q.Parked, q.Leased)
		}
		if n := onLoop(r, func() int { return len(r.spaces.of(free.ID).keys) }); n != 0 {
			r.Errorf("%d concurrency keys are in memory that no task uses, want 0", n)
		}
	})
}

// T2, W12: tasks whose concurrency key has no room are parked also if the only worker with room
// takes one task of a key at a time and has one already. If it only passed over them, tasks of
// other keys behind many of them would wait.
func TestTasksOfAFullKeyAreParkedForASingleFlightWorker(t *testing.T) {
	t.Attr("rules", "T2 W12")
	run(t, func(r *rig) {
		specs := many(mostPassed + 2)
		for _, s := range specs[:mostPassed+1] {
			s.ConcurrencyKey = "k"
		}
		specs[mostPassed+1].ConcurrencyKey = "l"
		r.submit(specs...)
		a := r.worker("a", 5, func(w *Wants) { w.SingleFlight = true })
		if n := len(a.grants()); n != 2 {
			r.Errorf("%d grants to a worker with five slots, want 2: a task of each key", n)
		}
		if q := r.queueInfo(); q.Parked != uint64(mostPassed) {
			r.Errorf("%d parked tasks, want %d", q.Parked, mostPassed)
		}
	})
}

// T11, T13: random commands, kills included, on tasks that share three keys, in a queue with
// max_inflight: neither limit is exceeded after any grant, as counted from the leases that the test
// holds, and in the end all tasks complete.
func TestLimitsHoldUnderRandomCommands(t *testing.T) {
	t.Attr("rules", "T11 T13")
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomLimits(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func randomLimits(t *testing.T, rng *rand.Rand) {
	run(t, func(r *rig) {
		const inflight = 6
		if _, err := r.UpdateQueue(r.Context(), home, "q", func(s *lease.Settings) { s.MaxInflight = inflight }); err != nil {
			r.Fatal(err)
		}
		live := map[lease.TaskID]Granted{}
		total, done := 0, 0
		finish := func(kind lease.Kind) {
			for id, g := range live {
				if a := r.say(kind, g); kind == lease.KindComplete && a.Verdict == lease.VerdictCommitted {
					done++
				}
				delete(live, id)
				return
			}
		}
		take := func() int {
			g := r.lease(1+rng.IntN(4), 0)
			for _, g := range g {
				live[g.Task.ID] = g
				r.say(lease.KindStart, g)
			}
			checkLimits(r, live, inflight)
			return len(g)
		}
		for range 300 {
			switch n := rng.IntN(100); {
			case n < 30:
				spec := specWithKey(fmt.Sprint("k", rng.IntN(3)), uint32(1+rng.IntN(3)))
				spec.Retry.MaxLosses = lease.MaxBudget
				r.submit(spec)
				total++
			case n < 60:
				take()
			case n < 80:
				finish(lease.KindComplete)
			case n < 90:
				finish(lease.KindRelease)
			case n < 94:
				r.kill()
			case n < 97:
				clear(live)
				time.Sleep(2 * lease.DefaultHeartbeatTimeout)
			default:
				r.restart(Config{})
			}
		}
		for idle := 0; idle < 20 && done < total; {
			if take() == 0 {
				idle++
				time.Sleep(lease.DefaultMaxBackoff)
			}
			for len(live) > 0 {
				finish(lease.KindComplete)
			}
		}
		if done != total {
			r.Errorf("%d of %d tasks completed, want all", done, total)
		}
	})
}

// checkLimits fails if the live leases of a key or of the queue are more than its limit.
func checkLimits(r *rig, live map[lease.TaskID]Granted, inflight int) {
	r.Helper()
	count, limit := map[string]int{}, map[string]int{}
	for _, g := range live {
		s := g.Task.Spec
		count[s.ConcurrencyKey]++
		if l := limit[s.ConcurrencyKey]; l == 0 || int(s.ConcurrencyLimit) < l {
			limit[s.ConcurrencyKey] = int(s.ConcurrencyLimit)
		}
	}
	for key, n := range count {
		if n > limit[key] {
			r.Fatalf("%d live leases share key %q, want at most its limit, %d", n, key, limit[key])
		}
	}
	if len(live) > inflight {
		r.Fatalf("%d live leases in the queue, want at most its max_inflight, %d", len(live), inflight)
	}
}

// T11: a parked task with a lower limit holds up the tasks behind it. When it is cancelled or
// deleted, they are granted, and the queue no longer counts it.
func TestRemovedParkedTaskUnblocksThoseBehindIt(t *testing.T) {
	t.Attr("rules", "T11")
	for name, remove := range map[string]func(*rig, lease.TaskID) error{
		"cancelled": func(r *rig, id lease.TaskID) error {
			_, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: id})
			return err
		},
		"deleted": func(r *rig, id lease.TaskID) error {
			return r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: id})
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				tasks := r.submit(specWithKey("k", 2), specWithKey("k", 2), specWithKey("k", 1), specWithKey("k", 2))
				g := r.lease(4, 0)
				if len(g) != 2 {
					r.Fatalf("leased tasks %s, want the first two", sequencesOf(g))
				}
				r.say(lease.KindComplete, g[0])
				if err := remove(r, tasks[2].ID); err != nil {
					r.Fatal(err)
				}
				if g := r.lease(4, 0); len(g) != 1 || g[0].Task.ID != tasks[3].ID {
					r.Errorf("leased tasks %s, want the one behind the removed task, %d", sequencesOf(g), tasks[3].ID.Seq)
				}
				if q := r.queueInfo(); q.Ready != 0 || q.Parked != 0 {
					r.Errorf("the queue has %d READY and %d parked tasks, want none", q.Ready, q.Parked)
				}
			})
		})
	}
}

// T11: the limit of a key also holds after a stall (A8) in which its last lease was reported and
// the deadline of the parked task passed. Then no timer fails this task, but the command that puts
// it back in its line.
func TestLimitHoldsAfterAParkedTaskEndedInAStall(t *testing.T) {
	t.Attr("rules", "A8 T11")
	for range 5 { // the order of a map matters
		run(t, func(r *rig) {
			c := r.joinFor(Wants{Space: home, Worker: "c", Queues: []string{"q"}}, 5)
			parked := specWithKey("k", 1)
			parked.Deadline = lease.WallOf(time.Now().Add(10 * time.Second))
			r.submit(specWithKey("k", 1), parked)
			held := c.grants()[0]
			var all sync.WaitGroup
			gate := make(chan struct{})
			for _, call := range []func(){ // all but the first run in one round
				func() { onLoop(r, func() bool { <-gate; return true }) },
				func() { onLoop(r, func() bool { time.Sleep(20 * time.Second); return true }) },
				func() { r.say(lease.KindComplete, held) },
				func() { r.submit(specWithKey("k", 1)) },
			} {
				all.Go(call)
				synctest.Wait()
			}
			close(gate)
			all.Wait()
			r.submit(specWithKey("k", 1))
			time.Sleep(time.Second)
			if n := len(c.grants()); n != 2 {
				r.Errorf("%d grants, want 2: the first task, and after its end one more", n)
			}
		})
	}
}

// T2, T12, A8: for calls that do not wait, or for a session, many tasks of a key without room must
// be parked before it comes to a task that it may have. Calls of other tenants have their turn
// meanwhile. In the end it gets that task.
func TestParkingManyTasksHoldsUpNobody(t *testing.T) {
	t.Attr("rules", "T2 T12 A8")
	bound(t, 200, &triesPerTurn, &lineHead)
	wants := Wants{Space: home, Worker: "w", Queues: []string{"q"}}
	for name, ask := range map[string]func(r *rig) (granted func() []Granted){
		"call": func(r *rig) func() []Granted { return r.leaseAside(LeaseRequest{Wants: wants, Max: 1}) },
		"many calls": func(r *rig) func() []Granted {
			var calls []func() []Granted
			for range 20 {
				calls = append(calls, r.leaseAside(LeaseRequest{Wants: wants, Max: 1}))
			}
			return func() (all []Granted) {
				for _, granted := range calls {
					all = append(all, granted()...)
				}
				return all
			}
		},
		"session": func(r *rig) func() []Granted {
			c := &testSession{}
			r.Join(c.newMember("w", wants, 1))
			return c.grants
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				n := 10 * triesPerTurn
				free := r.submitManyOfAHeldKey(n)
				var parked []int // number of parked tasks, each time when it is the turn of the other tenant
				var look func()
				look = func() {
					if parked = append(parked, int(r.spaces.total.parked)); parked[len(parked)-1] < n {
						r.enqueue("umbra", look)
					}
				}
				held := make(chan struct{}) // so that the loop takes both operations at once
				r.enqueue("umbra", func() { <-held })
				synctest.Wait()
				granted := ask(r)
				synctest.Wait()
				r.enqueue("umbra", look)
				close(held)
				if g := granted(); len(g) != 1 || g[0].Task.ID != free {
					r.Errorf("granted tasks %s, want %d, the one without a key", sequencesOf(g), free.Seq)
				}
				most := 2 * (triesPerTurn + grantsPerTurn) // one turn of the call, and one of all others that take work
				for before, all := 0, parked; len(all) > 0; before, all = all[0], all[1:] {
					if all[0]-before > most {
						r.Errorf("%v tasks were parked at each turn of another tenant, want at most %d more from turn to turn", parked, most)
					}
				}
			})
		})
	}
}

// T12: while many tasks must be parked for a call that does not wait, such a call of another
// tenant, for which there is no task, has its answer at once.
func TestParkingManyTasksHoldsUpNoEmptyAnswer(t *testing.T) {
	t.Attr("rules", "T12")
	bound(t, 200, &triesPerTurn, &lineHead)
	run(t, func(r *rig) {
		n := 10 * triesPerTurn
		r.submitManyOfAHeldKey(n)
		held, parked := make(chan struct{}), -1 // number of parked tasks when the other call has its answer
		r.enqueue("umbra", func() { <-held })
		synctest.Wait()
		granted := r.leaseAside(LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1})
		synctest.Wait()
		other := newTaker(Wants{Space: Space{"umbra", home.Workspace}, Worker: "w", Queues: []string{"q"}}, 1)
		other.call.reply = func([]Granted, error) {}
		r.enqueue("umbra", func() { r.beginLease(other, false) })
		var look func()
		look = func() {
			if parked = int(r.spaces.total.parked); !other.gone {
				r.enqueue("umbra", look)
			}
		}
		r.enqueue("umbra", look)
		close(held)
		if len(granted()) != 1 {
			r.Error("the call got no task")
		}
		synctest.Wait()
		if most := 2 * (triesPerTurn + grantsPerTurn); parked > most {
			r.Errorf("%d tasks were parked before the other call had its answer, want at most %d", parked, most)
		}
	})
}

// T2, T11: what the end of a lease costs does not grow with the number of lines, here of fairness
// keys, that wait for its concurrency key: only some of their tasks come back and are parked again.
// The next task of the key is granted nevertheless, until none is left.
func TestEndOfALeaseBringsFewParkedTasksBack(t *testing.T) {
	t.Attr("rules", "T2 T11")
	bound(t, 100, &linesInTurn)
	const keys = 300
	h := newManualEngine(t, 1, 10)
	specs, digests := h.specs(2 * keys)
	for i, s := range specs {
		s.ConcurrencyKey, s.ConcurrencyLimit, s.FairnessKey = "k", 1, fmt.Sprint(i%keys)
	}
	h.submitSpecs(specs, digests)
	match := func() (tried int) {
		before := h.effort.tried
		for h.match(); !h.agenda.empty() || len(h.parking.roomy) > 0; h.match() {
		}
		return h.effort.tried - before
	}
	match()
	most := 3 + 2*linesInTurn/looksPerTry // one task comes back and is granted; before, the lines are sorted
	for i := range specs {
		h.complete(h.completions(1))
		h.endBatch()
		if tried := match(); tried > most {
			t.Fatalf("%d tasks were tried after completion %d, want at most %d", tried, i, most)
		}
	}
}

// T12, T11: fairness keys whose tasks wait for the same concurrency key get turns in proportion to
// their weights.
func TestWeightsUnderAConcurrencyKey(t *testing.T) {
	t.Attr("rules", "T11 T12")
	const keys, weight, turns = 30, 10, 10
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"heavy": weight} })
		submit := func(key string, n int) {
			specs := many(n)
			for _, s := range specs {
				s.FairnessKey, s.ConcurrencyKey, s.ConcurrencyLimit = key, "k", 1
			}
			r.submit(specs...)
		}
		submit("heavy", 2)
		for i := 1; i < keys; i++ {
			submit(fmt.Sprint(i), 2)
		}
		worker, _ := r.join("i", 10)
		got := map[string]int{}
		for i := range turns * (keys - 1 + weight) {
			granted := worker.grants()
			if len(granted) != i+1 {
				r.Fatalf("%d tasks were leased after %d completions, want one more", len(granted), i)
			}
			key := granted[i].Task.Spec.FairnessKey
			got[key]++
			r.say(lease.KindComplete, granted[i])
			submit(key, 1)
		}
		for key, n := range got {
			least, most := turns, turns
			if key == "heavy" {
				least, most = weight*turns*9/10, weight*turns
			}
			if n < least || n > most+1 {
				r.Errorf("%q had %d turns, want %d to %d", key, n, least, most+1)
			}
		}
	})
}

// A call that does not wait has an answer also if the engine stops between two of its turns.
func TestStopBetweenTheTurnsOfACall(t *testing.T) {
	bound(t, 200, &triesPerTurn)
	run(t, func(r *rig) {
		free := r.submitManyOfAHeldKey(5 * triesPerTurn)
		held := make(chan struct{})
		r.enqueue("umbra", func() { <-held })
		synctest.Wait()
		granted := r.leaseAside(LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1})
		synctest.Wait()
		r.enqueue("umbra", r.stop)
		close(held)
		if g := granted(); len(g) > 0 && g[0].Task.ID != free {
			r.Errorf("granted task %d, want none, or %d, the one without a key", g[0].Task.ID.Seq, free.Seq)
		}
		if err := <-r.done; err != nil {
			r.Fatal(err)
		}
		r.start(Config{})
	})
}

// submitManyOfAHeldKey submits n tasks of a key that a lease holds, and behind them a task without
// a key, which it returns.
func (r *rig) submitManyOfAHeldKey(n int) lease.TaskID {
	r.Helper()
	r.submit(specWithKey("k", 1))
	if len(r.lease(1, 0)) != 1 {
		r.Fatal("nobody holds the key")
	}
	specs := many(n)
	for _, s := range specs {
		s.ConcurrencyKey = "k"
	}
	r.submit(specs...)
	return r.submit(work())[0].ID
}

// leaseAside makes a call in a goroutine of its own. granted waits for its answer.
func (r *rig) leaseAside(ask LeaseRequest) (granted func() []Granted) {
	answer := make(chan []Granted, 1)
	go func() {
		g, err := r.Lease(r.Context(), ask)
		if err != nil && !errors.Is(err, ErrStopped) {
			r.Error(err)
		}
		answer <- g
	}()
	return func() []Granted { return <-answer }
}

// enqueue makes the loop call run when it is the tenant's turn.
func (r *rig) enqueue(tenant string, run func()) {
	if err := r.inbox.put(tenant, op{must: true, run: run}); err != nil {
		r.Error(err)
	}
}
