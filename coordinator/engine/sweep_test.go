package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// cancelAll is a sweep that cancels the tasks of a type.
func cancelAll(typ string) Sweep {
	return Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
		switch {
		case t.Spec.Type != typ:
			return nil, false
		case t.Rest.Final():
			return nil, true
		}
		return lease.Cancel{Tenant: home.Tenant, Task: t.ID, By: "ops"}, false
	}}
}

// T9: a sweep goes over all tasks in bounded steps and calls, and counts what it changed and
// skipped. It leaves alone the tasks that were submitted after it began.
func TestSweepGoesOverAllTasksInSteps(t *testing.T) {
	t.Attr("rules", "T9")
	bound(t, 1000, &sweepCall)
	run(t, func(r *rig) {
		n, most := uint64(sweepCall+500), uint64(sweepCall)
		for range n / 500 {
			specs := many(500)
			for i, s := range specs {
				if i%5 == 0 {
					s.Type = "other"
				}
			}
			r.submit(specs...)
		}
		s := cancelAll("")
		first, err := r.Sweep(r.Context(), s)
		if err != nil || first.Changed != most*4/5 || first.Skipped != 0 || !first.More {
			r.Fatalf("the first call: %+v, %v; want %d changed, 0 skipped and more to do", first, err, most*4/5)
		}
		late := r.submit(work())[0]
		s.After, s.Until = first.After, first.Until
		second, err := r.Sweep(r.Context(), s)
		if err != nil || second.Changed != 500*4/5 || second.More {
			r.Fatalf("the second call: %+v, %v; want %d changed and nothing more to do", second, err, 500*4/5)
		}
		r.kill()
		if q := r.queueInfo(); q.Ready != n/5+1 || r.version(late.ID).State() != lease.Ready {
			r.Errorf("%d tasks wait, want the %d of the other type and the late one", q.Ready, n/5)
		}
		again, err := r.Sweep(r.Context(), cancelAll(""))
		if err != nil || again.Changed != 0 || again.Skipped != most*4/5 {
			r.Errorf("a second sweep: %+v, %v; want 0 changed and %d skipped in its first call", again, err, most*4/5)
		}
	})
}

// T9: a sweep decides only on the tasks of its run whose specs match; of a workspace, one call
// reads a bounded number of tasks, of a run those of the run.
func TestSweepLooksOnlyAtWhatMatches(t *testing.T) {
	t.Attr("rules", "T9")
	bound(t, 1000, &sweepCall)
	run(t, func(r *rig) {
		for range sweepCall/500 + 1 {
			r.submit(many(500)...)
		}
		var want []lease.TaskID
		for i, s := range many(6) {
			s.RunID = []string{"", "run", "other"}[i%3]
			s.Type = []string{"", "last"}[i/3]
			if id := r.submit(s)[0].ID; s.RunID == "run" && s.Type == "last" {
				want = append(want, id)
			}
		}
		for _, c := range []struct {
			name, run string
			older     uint64 // last task that may be missing in the index of runs
			more      bool   // the first call does not read all
		}{{"of a run", "run", 0, false}, {"of a workspace", "", 0, true}, {"of a run in an older store", "run", want[0].Seq - 1, true}} {
			name := c.name
			if c.older > 0 {
				var b store.Batch
				b.Put(store.Run, store.AppendGroupKey(nil, store.OlderTasks,
					lease.TaskID{Space: want[0].Space, Seq: c.older}), nil)
				if err := r.st.Commit(r.Context(), &b); err != nil {
					r.Fatal(err)
				}
			}
			var chosen []lease.TaskID
			s := Sweep{
				Space: home, Run: c.run,
				Matches: func(t *lease.Task) bool { return t.Spec.Type == "last" && (c.run != "" || t.Spec.RunID == "run") },
				Choose:  func(t *lease.Task) (lease.Command, bool) { chosen = append(chosen, t.ID); return nil, true },
			}
			done, err := r.Sweep(r.Context(), s)
			if err != nil || done.More != c.more {
				r.Errorf("%s: the first call: %+v, %v; want more to do: %t", name, done, err, c.more)
			}
			if done.More {
				s.After, s.Until = done.After, done.Until
				done, err = r.Sweep(r.Context(), s)
			}
			if err != nil || done.More || done.Skipped != 1 || !slices.Equal(chosen, want) {
				r.Errorf("%s: %+v, %v after it decided on tasks %v; want nothing more, and only %v",
					name, done, err, chosen, want)
			}
			s.Until = want[0].Seq - 1
			s.After = 0
			chosen = nil
			for done.More = true; done.More && err == nil; s.After = done.After {
				done, err = r.Sweep(r.Context(), s)
			}
			if err != nil || len(chosen) > 0 {
				r.Errorf("%s, until the task before: %+v, %v, tasks %v; want none", name, done, err, chosen)
			}
		}
	})
}

// T9: a sweep of the task with an idempotency key decides on that task alone, and reads no others.
func TestSweepOfAKey(t *testing.T) {
	t.Attr("rules", "T9")
	bound(t, 3, &sweepCall)
	run(t, func(r *rig) {
		r.submit(many(10)...)
		spec, chosen := work(), 0
		spec.IdempotencyKey = "key"
		id := r.submit(spec)[0].ID
		s := Sweep{Space: home, Key: "key", Choose: func(t *lease.Task) (lease.Command, bool) {
			if chosen++; t.ID != id {
				r.Errorf("the sweep decides on %v, want only %v", t.ID, id)
			}
			return lease.Delete{Tenant: home.Tenant, Task: t.ID}, false
		}}
		for _, want := range []Swept{{Changed: 1}, {}} {
			if done, err := r.Sweep(r.Context(), s); err != nil || done != want {
				r.Errorf("%+v, %v; want %+v", done, err, want)
			}
		}
		if chosen != 1 {
			r.Errorf("the sweeps decided %d times, want once: the second finds no task", chosen)
		}
	})
}

// T9: a task whose command is refused is counted as skipped. A sweep over a workspace without tasks
// is no error.
func TestSweepCountsWhatIsRefused(t *testing.T) {
	t.Attr("rules", "T9")
	run(t, func(r *rig) {
		none, err := r.Sweep(r.Context(), cancelAll(""))
		if err != nil || none != (Swept{}) {
			r.Errorf("a workspace without tasks: %+v, %v; want zero and no error", none, err)
		}
		r.submit(many(3)...)
		r.lease(1, 0)
		s := Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
			return lease.Delete{Tenant: home.Tenant, Task: t.ID}, false
		}}
		if done, err := r.Sweep(r.Context(), s); err != nil || done.Changed != 2 || done.Skipped != 1 || done.More {
			r.Errorf("deletes without force: %+v, %v; want 2 changed, and the leased task skipped", done, err)
		}
	})
}

// A3: a sweep applies the due timers of a task before it decides on it.
func TestSweepAppliesDueTimers(t *testing.T) {
	t.Attr("rules", "T9 A3")
	run(t, func(r *rig) {
		spec := work()
		spec.Retry.MaxLosses = 1
		id := r.submit(spec)[0].ID
		r.say(lease.KindStart, r.lease(1, 0)[0])
		var seen lease.State
		look := Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
			seen = t.State()
			return nil, false
		}}
		time.Sleep(lease.DefaultHeartbeatTimeout - 10*time.Millisecond)
		synctest.Wait()
		err := onLoop(r, func() error { // on the loop, so that the timer itself cannot come first
			time.Sleep(20 * time.Millisecond)
			r.readClocks()
			return r.sweepTask(look, id, new(Swept))
		})
		if err != nil || seen != lease.Failed {
			r.Errorf("the sweep saw the task as %v (%v), want FAILED, as its lease had expired", seen, err)
		}
	})
}

// T9: a sweep decides on the newest version of a task, not on the stored one: it sees a report
// whose commit is still under way.
func TestSweepSeesWhatIsNotDurableYet(t *testing.T) {
	t.Attr("rules", "T9")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		g := r.lease(1, 0)[0]
		block := make(chan struct{})
		r.beforeCommits(func() { <-block })
		var done sync.WaitGroup
		done.Go(func() { r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None) })
		synctest.Wait()
		var seen lease.State
		look := Sweep{Space: home, Until: id.Seq, Choose: func(t *lease.Task) (lease.Command, bool) {
			seen = t.State()
			return nil, false
		}}
		done.Go(func() {
			if _, err := r.Sweep(r.Context(), look); err != nil {
				r.Error(err)
			}
		})
		synctest.Wait()
		close(block)
		done.Wait()
		if seen != lease.Completed {
			r.Errorf("the sweep saw the task as %v, want COMPLETED", seen)
		}
	})
}

// T9: a sweep that is refused between two steps answers with what it did, and goes on where it
// stopped. One that has changed nothing is refused.
func TestSweepThatIsRefusedInTheMiddle(t *testing.T) {
	t.Attr("rules", "T9")
	bound(t, 20, &maxWaiting)
	for name, c := range map[string]struct {
		refuse, serve func(r *rig)
		err           error
	}{
		"overloaded": {
			refuse: func(r *rig) {
				r.overload(time.Minute)
				for r.inbox.put(home.Tenant, op{settles: true, run: func() {}}) == nil {
				}
			},
			serve: func(*rig) { time.Sleep(time.Minute); synctest.Wait() },
			err:   ErrOverloaded,
		},
		"stopping": {
			refuse: func(r *rig) { r.stop(); synctest.Wait() },
			serve: func(r *rig) {
				if err := <-r.done; err != nil {
					r.Error(err)
				}
				r.start(Config{})
			},
			err: ErrStopped,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				tasks := r.submit(many(sweepStep * 3)...)
				s, looked := cancelAll(""), 0
				s.Matches = func(*lease.Task) bool {
					if looked++; looked == sweepStep+1 {
						c.refuse(r)
					}
					return true
				}
				first, err := r.Sweep(r.Context(), s)
				want := Swept{
					Changed: uint64(sweepStep), After: tasks[sweepStep-1].ID.Seq,
					Until: tasks[len(tasks)-1].ID.Seq, More: true,
				}
				if err != nil || first != want {
					r.Errorf("the first call: %+v, %v; want %+v", first, err, want)
				}
				s.After, s.Until, s.Matches = first.After, first.Until, nil
				if none, err := r.Sweep(r.Context(), s); !errors.Is(err, c.err) {
					r.Errorf("a call that can change nothing: %+v, %v; want %v", none, err, c.err)
				}
				c.serve(r)
				if rest, err := r.Sweep(r.Context(), s); err != nil || rest.Changed != uint64(2*sweepStep) || rest.Skipped != 0 || rest.More {
					r.Errorf("the rest: %+v, %v; want %d changed and nothing more to do", rest, err, 2*sweepStep)
				}
			})
		})
	}
}

// T9: a sweep whose caller has gone stops after the current step; the steps before it stay done.
func TestSweepStopsWithItsCaller(t *testing.T) {
	t.Attr("rules", "T9")
	run(t, func(r *rig) {
		r.submit(many(sweepStep * 3)...)
		ctx, cancel := context.WithCancel(r.Context())
		s := cancelAll("")
		choose, seen := s.Choose, 0
		s.Choose = func(t *lease.Task) (lease.Command, bool) {
			if seen++; seen == sweepStep {
				cancel()
			}
			return choose(t)
		}
		if _, err := r.Sweep(ctx, s); !errors.Is(err, context.Canceled) {
			r.Errorf("the sweep returned %v, want context.Canceled", err)
		}
		if q := r.queueInfo(); q.Ready != uint64(2*sweepStep) {
			r.Errorf("%d tasks wait, want the %d of the last two steps", q.Ready, 2*sweepStep)
		}
	})
}
