package engine

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// worker joins a worker; with may change what it wants.
func (r *rig) worker(name string, slots int, with func(*Wants)) *testSession {
	r.Helper()
	w := Wants{Space: home, Worker: name, Queues: []string{"q"}}
	if with != nil {
		with(&w)
	}
	return r.joinFor(w, slots)
}

// submitWith submits one task; ask may change its spec.
func (r *rig) submitWith(ask func(*lease.Spec)) lease.TaskID {
	r.Helper()
	s := work()
	ask(s)
	return r.submit(s)[0].ID
}

// startAll sends a Start for each task that a session was granted, so that the leases do not end as
// unacknowledged.
func (r *rig) startAll(c *testSession) {
	r.Helper()
	for _, g := range c.grants() {
		r.sayBy(c.Session, lease.KindStart, g)
	}
}

// grantedKeys returns the task keys of the tasks that the session was granted.
func (c *testSession) grantedKeys() (names []string) {
	for _, g := range c.grants() {
		names = append(names, g.Task.Spec.TaskKey)
	}
	return names
}

func (r *rig) wantGranted(c *testSession, names ...string) {
	r.Helper()
	if got := c.grantedKeys(); fmt.Sprint(got) != fmt.Sprint(names) {
		r.Errorf("worker %s was granted the tasks %v, want %v", c.Wants.Worker, got, names)
	}
}

func requiresGPU(s *lease.Spec) {
	s.Requirements = &lease.Requirements{
		Runtimes: []string{"python"}, Features: []string{"gpu"}, Labels: map[string]string{"zone": "a"},
		Resources: map[string]float64{"mem_gib": 16},
	}
}

func hasGPU(w *Wants) {
	w.Capabilities = lease.Capabilities{
		Runtimes: []string{"go", "python"}, Features: []string{"gpu", "avx"},
		Labels:    map[string]string{"zone": "a", "os": "linux"},
		Resources: map[string]float64{"mem_gib": 16, "cores": 4},
	}
}

// W12: a task goes only to a worker that has all that the task requires. While it waits, a worker
// with less gets other tasks, even if they have a lower priority.
func TestRequirementsAreMet(t *testing.T) {
	t.Attr("rules", "W12")
	lacking := map[string]func(*Wants){
		"runtime":  func(w *Wants) { w.Capabilities.Runtimes = []string{"go"} },
		"feature":  func(w *Wants) { w.Capabilities.Features = nil },
		"label":    func(w *Wants) { w.Capabilities.Labels = map[string]string{"zone": "b"} },
		"resource": func(w *Wants) { w.Capabilities.Resources = map[string]float64{"mem_gib": 15.9} },
	}
	for name, less := range lacking {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.submitWith(func(s *lease.Spec) { requiresGPU(s); s.TaskKey, s.Priority = "picky", 9 })
				poor := r.worker("poor", 5, func(w *Wants) { hasGPU(w); less(w) })
				r.submitWith(func(s *lease.Spec) { s.TaskKey = "plain" })
				r.wantGranted(poor, "plain")
				rich := r.worker("rich", 5, hasGPU)
				r.wantGranted(rich, "picky")
			})
		})
	}
}

// W12: a worker without the required capabilities gets no task, neither on a stream nor by a unary
// Lease. When the worker registers the capabilities, it gets the task, also after a crash.
func TestUpdatedCapabilitiesCountAtOnce(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		r.submitWith(requiresGPU)
		c := r.worker("w", 1, nil)
		if n := len(c.grants()); n != 0 {
			r.Fatalf("%d grants to a worker without capabilities, want 0", n)
		}
		if g := r.lease(1, 0); len(g) != 0 {
			r.Fatal("a call without capabilities was granted the task")
		}
		r.kill()
		c = r.worker("w", 1, nil)
		wants := c.Wants
		hasGPU(&wants)
		r.Update(c.Member, wants, 1)
		if n := len(c.grants()); n != 1 {
			r.Errorf("%d grants after the worker registered what the task requires, want 1", n)
		}
	})
}

func pinnedTo(worker string) func(*lease.Spec) {
	return func(s *lease.Spec) { s.ResourceRefs = []lease.ResourceRef{{ResourceID: "model", Worker: worker}} }
}

// W12: a pinned task goes only to the worker that holds its resources, even if others are idle.
func TestPinnedTaskGoesToItsWorker(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		other := r.worker("other", 5, nil)
		r.submitWith(pinnedTo("holder"))
		holder := r.worker("holder", 1, nil)
		r.submitWith(pinnedTo("holder"))
		if o, h := len(other.grants()), len(holder.grants()); o != 0 || h != 1 {
			r.Errorf("%d grants to another worker and %d to the holder of the resource, want 0 and 1", o, h)
		}
	})
}

// W12: a task whose worker is gone for longer than resource_wait is FAILED / RESOURCE_GONE. The
// wait begins when the worker goes, and ends when it returns; the next wait has its full length
// again.
func TestPinnedTaskFailsWhenItsWorkerIsGone(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		holder := r.worker("holder", 1, nil)
		first := r.submitWith(pinnedTo("holder"))
		r.startAll(holder)
		waits := r.submitWith(pinnedTo("holder"))
		r.Leave(holder.Member, false)
		time.Sleep(lease.DefaultResourceWait - time.Second)
		holder = r.worker("holder", 0, nil)
		time.Sleep(lease.DefaultHeartbeatTimeout) // meanwhile the lease of the first task expires
		if s := r.version(waits).State(); s != lease.Ready {
			r.Fatalf("the task is %v although its worker has come back, want READY", s)
		}
		r.Leave(holder.Member, false)
		time.Sleep(lease.DefaultResourceWait - time.Second)
		if s := r.version(waits).State(); s != lease.Ready {
			r.Fatalf("the task is %v before its worker is gone for resource_wait, want READY", s)
		}
		time.Sleep(2 * time.Second)
		for _, id := range []lease.TaskID{waits, first} {
			if v := r.version(id); v.State() != lease.Failed || v.Reason != lease.ResourceGone {
				r.Errorf("task %v is %v / %v, want FAILED / RESOURCE_GONE", id, v.State(), v.Reason)
			}
		}
		if n := onLoop(r, func() int { return len(r.workers.byKey) }); n != 0 {
			r.Errorf("%d workers are in memory that no task needs, want 0", n)
		}
	})
}

// W12: many tasks whose worker is gone fail in steps, also those that are only in the store. After
// a crash the wait begins again. A task that is not pinned stays READY.
func TestManyPinnedTasksFailInSteps(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		n := 3 * lossesPerRound
		specs := many(n)
		for _, s := range specs {
			pinnedTo("nobody")(s)
		}
		r.submit(specs...)
		r.submit(work())
		time.Sleep(lease.DefaultResourceWait / 2)
		r.kill()
		time.Sleep(lease.DefaultResourceWait - time.Second)
		if q := r.queueInfo(); q.Ready != uint64(n+1) {
			r.Fatalf("%d tasks wait, want all %d", q.Ready, n+1)
		}
		time.Sleep(2 * time.Second)
		if q := r.queueInfo(); q.Ready != 1 {
			r.Errorf("%d tasks wait, want the one that is not pinned", q.Ready)
		}
	})
}

// W12: tasks that are parked under a concurrency key fail as well when the worker to which they are
// pinned is gone, and ExplainTask says that they will. They do not wait for the key, which may be
// held for hours. It makes no difference whether they are in memory or only in the store.
func TestParkedPinnedTasksFail(t *testing.T) {
	t.Attr("rules", "W12 S6")
	for _, crash := range []bool{false, true} {
		run(t, func(r *rig) {
			other := r.worker("other", 1, nil)
			holds := r.submit(specWithKey("disk", 1))[0].ID
			r.startAll(other)
			holder := r.worker("holder", 1, nil)
			specs := many(lossesPerRound + parkedHead)
			for _, s := range specs {
				pinnedTo("holder")(s)
				s.ConcurrencyKey, s.ConcurrencyLimit = "disk", 1
			}
			waits := r.submit(specs...)[0].ID
			synctest.Wait()
			if q := r.queueInfo(); q.Parked != uint64(len(specs)) {
				r.Fatalf("%d tasks are parked, want %d", q.Parked, len(specs))
			}
			r.Leave(holder.Member, false)
			if crash {
				r.kill()
			}
			x := r.explain(waits)
			if len(x.Findings) < 2 || x.Findings[0].Code != lease.FoundPinnedWorker || x.Findings[0].Until == 0 || x.Findings[1].Code != lease.FoundConcurrencyKey {
				r.Errorf("findings: %+v, want that the worker is gone, with the time when the wait for it ends, and then that the key has no room", x.Findings)
			}
			time.Sleep(lease.DefaultResourceWait - time.Second)
			if q := r.queueInfo(); q.Parked != uint64(len(specs)) {
				r.Errorf("%d tasks are parked before resource_wait is over, want %d", q.Parked, len(specs))
			}
			time.Sleep(2 * time.Second)
			if q := r.queueInfo(); q.Ready != 0 || q.Leased != 1 {
				r.Errorf("%d tasks wait and %d are leased, want 0 and the one that holds the key", q.Ready, q.Leased)
			}
			if v := r.version(waits); v.State() != lease.Failed || v.Reason != lease.ResourceGone {
				r.Errorf("the task is %v / %v, want FAILED / RESOURCE_GONE", v.State(), v.Reason)
			}
			if v := r.version(holds); v.State() != lease.Running {
				r.Errorf("the task that holds the key is %v, want RUNNING", v.State())
			}
		})
	}
}

// W12: while tasks of workers that are gone fail, other operations have their turn: a round gives
// up lossesPerRound tasks of each worker, and dueAtOnce in all.
func TestRoundGivesUpFewPinnedTasks(t *testing.T) {
	t.Attr("rules", "W12")
	synctest.Test(t, func(t *testing.T) {
		h := newManualEngine(t, 0, 0)
		waiting := 0
		goneWith := func(worker string) {
			specs, digests := h.specs(3 * lossesPerRound)
			for _, s := range specs {
				pinnedTo(worker)(s)
			}
			h.submitSpecs(specs, digests)
			h.endBatch()
			waiting += len(specs)
		}
		ring := func(given int) {
			t.Helper()
			time.Sleep(lease.DefaultResourceWait)
			h.clocks.read()
			h.ringAlarms()
			waiting -= given
			if got := int(h.spaces.total.counts[countReady]); got != waiting {
				t.Fatalf("%d tasks wait after the round, want %d: it gives up %d", got, waiting, given)
			}
		}
		goneWith("first")
		ring(lossesPerRound)
		ring(lossesPerRound)
		h.endBatch()
		for i := range 2 * dueAtOnce / lossesPerRound {
			goneWith(fmt.Sprint("one of many", i))
		}
		ring(dueAtOnce)
		ring(dueAtOnce)
	})
}

// W12: so do they while the bindings of many affinity keys end, all at once if a producer wants
// that. Each may have several lines.
func TestRoundEndsFewBindings(t *testing.T) {
	t.Attr("rules", "W12")
	const bindings = 20
	for lines, atOnce := range map[int]int{0: 10, 4: 5} {
		t.Run(fmt.Sprintf("lines=%d", lines), func(t *testing.T) {
			bound(t, 10, &dueAtOnce)
			bound(t, 20, &triesPerTurn)
			h := newManualEngine(t, 0, 0)
			s := h.spaces.obtain(home)
			for i := range bindings {
				key := fmt.Sprint(i)
				s.bindings[key] = &binding{worker: "w", end: h.alarms.in(0, func() { h.bindings.end(s, key) })}
				if specs, digests := h.specs(lines); lines > 0 {
					for n, s := range specs {
						s.Type, s.Affinity = fmt.Sprint(n), &lease.Affinity{Key: key, Mode: lease.Preferred, TTL: time.Minute}
					}
					h.submitSpecs(specs, digests)
				}
			}
			for left := bindings - atOnce; left >= 0; left -= atOnce {
				if h.ringAlarms(); len(s.bindings) != left {
					t.Fatalf("%d bindings are left after a round, want %d", len(s.bindings), left)
				}
			}
		})
	}
}

// W12: if several lines wait for one worker that is gone, their tasks fail, one line after the
// other. Afterwards nothing of that is left in memory: when the worker has come back and gone
// again, its tasks wait for resource_wait again.
func TestSeveralLinesPinnedToOneWorkerFail(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		var specs []*lease.Spec
		for _, typ := range []string{"a", "b"} {
			// both lines together have more tasks than one round gives up
			for _, s := range many(lossesPerRound * 3 / 4) {
				pinnedTo("holder")(s)
				s.Type = typ
				specs = append(specs, s)
			}
		}
		r.submit(specs...)
		time.Sleep(lease.DefaultResourceWait + time.Second)
		if q := r.queueInfo(); q.Ready != 0 {
			r.Fatalf("%d tasks wait for a worker that is gone, want all FAILED", q.Ready)
		}
		holder := r.worker("holder", 0, nil)
		id := r.submitWith(pinnedTo("holder"))
		time.Sleep(2 * lease.DefaultResourceWait)
		if s := r.version(id).State(); s != lease.Ready {
			r.Errorf("the task is %v although its worker has come back, want READY", s)
		}
		r.Leave(holder.Member, false)
		time.Sleep(lease.DefaultResourceWait + time.Second)
		if v := r.version(id); v.State() != lease.Failed || v.Reason != lease.ResourceGone {
			r.Errorf("it is %v / %v, want FAILED / RESOURCE_GONE", v.State(), v.Reason)
		}
		if n := onLoop(r, func() int { return len(r.workers.byKey) + r.alarms.set.Len() }); n != 0 {
			r.Errorf("%d workers and alarms are in memory that no task needs, want 0", n)
		}
	})
}

func withAffinity(key string, mode lease.AffinityMode) func(*lease.Spec) {
	return func(s *lease.Spec) { s.Affinity = &lease.Affinity{Key: key, Mode: mode, TTL: time.Minute} }
}

// W12: tasks of a STICKY key go to the worker of the first one and wait for it, until the TTL has
// passed since its last lease of the key.
func TestStickyKeyStaysWithItsWorker(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		a := r.worker("a", 1, nil)
		r.submitWith(withAffinity("k", lease.Sticky))
		b := r.worker("b", 5, nil)
		r.submitWith(withAffinity("k", lease.Sticky))
		if n := len(b.grants()); n != 0 {
			r.Fatalf("%d grants of the key to another worker, want 0", n)
		}
		r.sayBy(a.Session, lease.KindComplete, a.grants()[0])
		if n := len(a.grants()); n != 2 {
			r.Fatalf("%d grants of the key to its worker, want 2", n)
		}
		r.sayBy(a.Session, lease.KindComplete, a.grants()[1])
		r.Leave(a.Member, false)
		id, until := r.submitWith(withAffinity("k", lease.Sticky)), lease.WallOf(time.Now().Add(time.Minute))
		time.Sleep(time.Minute - time.Second)
		if f := r.explain(id).Findings[0]; f.Code != lease.FoundAffinity || f.Until != until {
			r.Errorf("the first finding is %+v, want FoundAffinity until %v", f, until)
		}
		if n := len(b.grants()); n != 0 {
			r.Fatalf("%d grants of the key to another worker before the TTL has passed, want 0", n)
		}
		time.Sleep(2 * time.Second)
		if n := len(b.grants()); n != 1 {
			r.Errorf("%d grants of the key to another worker after the TTL, want 1", n)
		}
		if n := onLoop(r, func() int { s := r.spaces.named(home); return len(s.bindings) + len(s.affinityLines) }); n != 1 {
			r.Errorf("%d bindings and waiting keys are in memory, want the one binding", n)
		}
	})
}

// W12: at a start the binding of a STICKY key is rebuilt from its live leases.
func TestStickyKeyStaysWithItsWorkerAfterARestart(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		a := r.worker("a", 1, nil)
		r.submitWith(withAffinity("k", lease.Sticky))
		r.startAll(a)
		r.submitWith(withAffinity("k", lease.Sticky))
		r.kill()
		b := r.worker("b", 5, nil)
		if n := len(b.grants()); n != 0 {
			r.Errorf("%d grants of the key to another worker, want 0", n)
		}
	})
}

// W12: a PREFERRED task that goes to another worker does not take its key away from the worker on
// which STICKY tasks of the key are kept, nor does its lease make these wait for that worker
// longer.
func TestPreferredTaskDoesNotMoveAStickyKey(t *testing.T) {
	t.Attr("rules", "W12")
	for _, restart := range []bool{false, true} {
		run(t, func(r *rig) {
			a := r.worker("a", 1, nil)
			b := r.worker("b", 5, func(w *Wants) { w.Types = []string{"other"} })
			r.submitWith(withAffinity("k", lease.Sticky))
			r.startAll(a)
			r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Preferred)(s); s.Type = "other" })
			r.startAll(b)
			if n := len(b.grants()); n != 1 {
				r.Fatalf("%d grants to another worker when the worker of the key has no room, want 1", n)
			}
			if restart {
				r.kill()
				a, b = r.joinFor(a.Wants, 1), r.joinFor(b.Wants, 5)
			}
			b.Wants.Types = nil
			r.Update(b.Member, b.Wants, 5)
			id := r.submitWith(withAffinity("k", lease.Sticky))
			if held := r.version(id).Lease; held != nil {
				r.Fatalf("after a restart (%v) a STICKY task was granted to worker %s, want it to wait for that of its key", restart, held.Worker)
			}
			r.Leave(a.Member, true)
			x, err := r.Explain(r.Context(), home.Tenant, id)
			if err != nil {
				r.Fatal(err)
			}
			// although b has a lease of the key
			if left := time.Until(x.Findings[0].Until.Time()); left != time.Minute {
				r.Errorf("the finding says that the binding ends in %v, want a minute", left)
			}
			time.Sleep(time.Minute + time.Second)
			if held := r.version(id).Lease; held == nil || held.Worker != "b" {
				r.Errorf("after the TTL the task has the lease %+v, want one of the other worker", held)
			}
		})
	}
}

// W12: a STICKY key stays with its worker, also when the lease of a PREFERRED task on another
// worker has ended longer ago than the TTL.
func TestEndOfAnotherWorkersLeaseDoesNotFreeAStickyKey(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		a := r.worker("a", 1, nil)
		r.submitWith(withAffinity("k", lease.Sticky))
		r.startAll(a)
		b := r.worker("b", 5, nil)
		r.submitWith(withAffinity("k", lease.Preferred)) // a has no room
		r.sayBy(b.Session, lease.KindComplete, b.grants()[0])
		time.Sleep(time.Minute + time.Second)
		r.submitWith(withAffinity("k", lease.Preferred))
		id := r.submitWith(withAffinity("k", lease.Sticky))
		if held := r.version(id).Lease; len(b.grants()) != 2 || held != nil {
			r.Errorf("%d grants to the other worker, and the STICKY task has the lease %+v; want 2, and none",
				len(b.grants()), held)
		}
	})
}

// W12: when the TTL of a STICKY key is over, a worker that still has a PREFERRED task of the key
// gets the key, and loses it with the next grant to another one.
func TestStickyKeyThatIsFreeFollowsPreferredTasks(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		a := r.worker("a", 1, nil)
		r.submitWith(withAffinity("k", lease.Sticky))
		b := r.worker("b", 1, nil)
		r.submitWith(withAffinity("k", lease.Preferred)) // a has no room
		r.startAll(b)
		r.Leave(a.Member, true)
		synctest.Wait()
		sticky := a.grants()[0].Task.ID
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: sticky}); err != nil {
			r.Fatal(err)
		}
		time.Sleep(time.Minute + time.Second)
		c := r.worker("c", 5, nil)
		r.submitWith(withAffinity("k", lease.Preferred)) // b has no room
		r.sayBy(b.Session, lease.KindComplete, b.grants()[0])
		r.submitWith(withAffinity("k", lease.Preferred))
		if x, y := len(b.grants()), len(c.grants()); x != 1 || y != 2 {
			r.Errorf("%d grants to the worker that had a task of the key, and %d to the next one, want 1 and 2", x, y)
		}
	})
}

// W12: a STICKY task that is pinned goes to its worker in any case, so it does not keep the key
// there: the key follows its next grant.
func TestPinnedTaskDoesNotKeepAKeyOnItsWorker(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		holder := r.worker("holder", 1, nil)
		r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Sticky)(s); pinnedTo("holder")(s) })
		other := r.worker("other", 5, nil)
		r.submitWith(withAffinity("k", lease.Preferred)) // its holder has no room
		r.sayBy(holder.Session, lease.KindComplete, holder.grants()[0])
		r.submitWith(withAffinity("k", lease.Preferred))
		if x, y := len(holder.grants()), len(other.grants()); x != 1 || y != 2 {
			r.Errorf("%d grants to the worker of the pinned task and %d to the other, want 1 and 2: the key has moved", x, y)
		}
	})
}

// W12: a task of a PREFERRED key goes to the worker of its key if that has room, even if it is
// another worker's turn; otherwise to another. That holds also if the worker has room for some
// tasks and not for others.
func TestPreferredKeyGoesToItsWorkerIfThatHasRoom(t *testing.T) {
	t.Attr("rules", "W12")
	for name, limit := range map[string]func(*Wants){"slots": nil, "bytes": func(w *Wants) { w.MaxBytes = 1000 }} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				a := r.worker("a", 3, limit)
				r.submitWith(withAffinity("k", lease.Preferred))
				b := r.worker("b", 5, nil)
				r.submit(work()) // a takes its turn
				r.submitWith(withAffinity("k", lease.Preferred))
				if x, y := len(a.grants()), len(b.grants()); x != 3 || y != 0 {
					r.Fatalf("%d grants to the worker of the key and %d to another, want 3 and 0", x, y)
				}
				r.submitWith(withAffinity("k", lease.Preferred))
				if y := len(b.grants()); y != 1 {
					r.Errorf("%d grants to another worker when the worker of the key has no room, want 1", y)
				}
			})
		})
	}
}

// W12: a PREFERRED task goes to another worker if the worker of its key no longer takes work:
// because of a resize to 0 or an update to other queues, or because it left.
func TestPreferredKeyOfAWorkerThatStops(t *testing.T) {
	t.Attr("rules", "W12")
	for name, stop := range map[string]func(*rig, *testSession){
		"resize": func(r *rig, c *testSession) { r.Resize(c.Member, 0) },
		"leave":  func(r *rig, c *testSession) { r.Leave(c.Member, false) },
		"update": func(r *rig, c *testSession) {
			w := c.Wants
			w.Queues = []string{"elsewhere"}
			r.Update(c.Member, w, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				a := r.worker("a", 2, nil)
				r.submitWith(withAffinity("k", lease.Preferred))
				r.startAll(a)
				r.setQueue(func(s *lease.Settings) { s.Paused = true })
				b := r.worker("b", 5, nil)
				r.submitWith(withAffinity("k", lease.Preferred))
				stop(r, a)
				r.setQueue(func(s *lease.Settings) { s.Paused = false })
				if n := len(b.grants()); n != 1 {
					r.Errorf("%d grants to another worker, want 1", n)
				}
			})
		})
	}
}

// W12: the engine looks at a bounded number of lines for a task that fits into a worker's free
// room. PREFERRED tasks beyond this bound do not wait for that worker if another worker can take
// them.
func TestPreferredKeysBeyondTheBound(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		a := r.worker("a", 1000, func(w *Wants) { w.MaxBytes = 100 })
		sized := func(i, size int) {
			r.submitWith(func(s *lease.Spec) {
				withAffinity(fmt.Sprint("k", i), lease.Preferred)(s)
				s.Payload = make([]byte, size)
			})
		}
		for i := range mostPassed + 1 { // binds as many keys to a
			sized(i, 1)
		}
		r.startAll(a)
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		b := r.worker("b", 1000, nil)
		for i := range mostPassed {
			sized(i, 90)
		}
		sized(mostPassed, 1)
		r.setQueue(func(s *lease.Settings) { s.Paused = false })
		if n := len(a.grants()) + len(b.grants()); n != 2*(mostPassed+1) {
			r.Errorf("%d tasks are granted, want all %d", n, 2*(mostPassed+1))
		}
	})
}

// W12: a worker without a stream counts as present while it holds a lease from a unary call, even
// if it asks for no more work meanwhile: the tasks that are pinned to it wait for its next call.
// resource_wait begins when the last of these leases has ended, also after a crash.
func TestUnaryWorkerWithALeaseCountsAsPresent(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		for range 3 {
			r.submitWith(pinnedTo("w"))
		}
		wants := Wants{Space: home, Worker: "w", Queues: []string{"q"}}
		for range 2 {
			g := r.leaseOne(wants, 0)
			for range 5 {
				time.Sleep(lease.DefaultHeartbeatInterval)
				r.want(r.say(lease.KindHeartbeat, g), lease.VerdictCommitted, lease.None)
			}
			r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
			time.Sleep(lease.DefaultResourceWait - time.Second)
			r.kill()
		}
		g := r.leaseOne(wants, 0)
		waits := r.submitWith(pinnedTo("w"))
		r.kill()
		time.Sleep(lease.DefaultResourceWait + time.Second)
		r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
		time.Sleep(lease.DefaultResourceWait - time.Second)
		if s := r.version(waits).State(); s != lease.Ready {
			r.Errorf("the task is %v before its worker is gone for resource_wait, want READY", s)
		}
		time.Sleep(2 * time.Second)
		if v := r.version(waits); v.State() != lease.Failed || v.Reason != lease.ResourceGone {
			r.Errorf("it is %v / %v, want FAILED / RESOURCE_GONE", v.State(), v.Reason)
		}
	})
}

// W12: a task that is pinned to one worker and has an affinity key goes to that worker only,
// whether the key is bound to nobody, to it or to another.
func TestPinnedTaskWithAnAffinityKey(t *testing.T) {
	t.Attr("rules", "W12")
	for _, mode := range []lease.AffinityMode{lease.Sticky, lease.Preferred} {
		run(t, func(r *rig) {
			other := r.worker("other", 5, nil)
			r.submitWith(func(s *lease.Spec) { pinnedTo("holder")(s); withAffinity("free", mode)(s) })
			r.submitWith(withAffinity("bound", mode))
			r.submitWith(func(s *lease.Spec) { pinnedTo("holder")(s); withAffinity("bound", mode)(s) })
			if n := len(other.grants()); n != 1 {
				r.Errorf("mode %v: %d grants to another worker, want the one task that is not pinned", mode, n)
			}
			holder := r.worker("holder", 5, nil)
			if n := len(holder.grants()); n != 2 {
				r.Errorf("mode %v: %d grants to the holder of the resource, want the two tasks that are pinned to it", mode, n)
			}
		})
	}
}

// W12: a PREFERRED task does not wait for the worker of its key if that worker has free slots but
// lacks what the task requires.
func TestPreferredKeyOfAWorkerThatLacksSomething(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		r.worker("a", 5, nil)
		r.submitWith(withAffinity("k", lease.Preferred))
		b := r.worker("b", 5, hasGPU)
		r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Preferred)(s); requiresGPU(s) })
		if n := len(b.grants()); n != 1 {
			r.Errorf("%d grants to another worker, want the one task that the worker of the key cannot take", n)
		}
	})
}

// W12: of several PREFERRED tasks, another worker gets those for which the worker of their key has
// no more room, even if the engine had kept them from it while the worker of the key had room.
func TestPreferredKeyOfAWorkerThatBecomesFull(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		a := r.worker("a", 5, func(w *Wants) { w.TypeLimits = map[string]uint32{"limited": 1} })
		r.submitWith(withAffinity("k", lease.Preferred))
		b := r.worker("b", 5, nil)
		r.submit(work()) // a takes its turn: b is asked before it
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		for range 2 {
			r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Preferred)(s); s.Type = "limited" })
		}
		r.setQueue(func(s *lease.Settings) { s.Paused = false })
		if x, y := len(a.grants()), len(b.grants()); x != 3 || y != 1 {
			r.Errorf("%d grants to the worker of the key and %d to another, want 3 and 1", x, y)
		}
	})
}

// W12: a PREFERRED task goes to another worker if the worker of its key has no room for it, also if
// that worker had room for the task before it and that one was parked: its concurrency key has no
// room.
func TestPreferredKeyBehindAParkedTask(t *testing.T) {
	t.Attr("rules", "W12")
	run(t, func(r *rig) {
		holder := r.worker("holder", 1, func(w *Wants) { w.Types = []string{"long"} })
		r.submitWith(func(s *lease.Spec) { s.Type, s.ConcurrencyKey = "long", "c" })
		r.startAll(holder)
		a := r.worker("a", 5, func(w *Wants) { w.MaxBytes = 64 })
		r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Preferred)(s); s.Payload = make([]byte, 20) })
		b := r.worker("b", 5, nil)
		r.submit(work()) // a takes its turn: b is asked before it
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Preferred)(s); s.ConcurrencyKey = "c" })
		r.submitWith(func(s *lease.Spec) { withAffinity("k", lease.Preferred)(s); s.Payload = make([]byte, 60) })
		r.setQueue(func(s *lease.Settings) { s.Paused = false })
		if x, y := len(a.grants()), len(b.grants()); x != 2 || y != 1 {
			r.Errorf("%d grants to the worker of the key and %d to another, want 2 and 1", x, y)
		}
	})
}
