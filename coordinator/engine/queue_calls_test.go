package engine

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

func (r *rig) setQueue(change func(*lease.Settings)) QueueInfo {
	r.Helper()
	q, err := r.UpdateQueue(r.Context(), home, "q", change)
	if err != nil {
		r.Fatal(err)
	}
	return q
}

// T13: a pause stops grants only: reports and submits go on, and the pause survives a crash. After
// a resume the waiting tasks are granted at once.
func TestPauseStopsGrantsOnly(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.submit(many(3)...)
		g := r.lease(1, 0)
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		r.join("i", 5)
		r.kill()
		c, _ := r.join("i", 5)
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCommitted, lease.None)
		r.submit(work())
		if n := len(c.grants()); n != 0 {
			r.Fatalf("%d grants while the queue is paused, want 0", n)
		}
		r.setQueue(func(s *lease.Settings) { s.Paused = false })
		if n := len(c.grants()); n != 3 {
			r.Errorf("%d grants after the pause, want 3", n)
		}
	})
}

// T13: max_inflight bounds the live leases of the queue over all workers. When one ends, or the
// limit is raised, a waiting worker gets the next task at once.
func TestMaxInflight(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.MaxInflight = 2 })
		r.submit(many(5)...)
		g := r.lease(5, 0)
		c, _ := r.join("i", 5)
		if len(g) != 2 || len(c.grants()) != 0 {
			r.Fatalf("%d grants to the call and %d to the session, want 2 and 0", len(g), len(c.grants()))
		}
		r.say(lease.KindComplete, g[0])
		if n := len(c.grants()); n != 1 {
			r.Fatalf("%d grants after a lease ended, want 1", n)
		}
		r.setQueue(func(s *lease.Settings) { s.MaxInflight = 4 })
		if n := len(c.grants()); n != 3 {
			r.Errorf("%d grants after the limit was raised, want 3", n)
		}
	})
}

// T13: a rate limit allows burst grants at once, then per_second, also if nobody asks again.
// Several crashes in a row allow at most one more grant.
func TestRateLimit(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Rate = lease.Rate{PerSecond: 2, Burst: 3} })
		r.submit(many(20)...)
		c, _ := r.join("i", 100)
		counts := []int{len(c.grants())}
		for range 3 {
			time.Sleep(time.Second)
			counts = append(counts, len(c.grants()))
		}
		if counts[0] != 3 || counts[1] != 5 || counts[2] != 7 || counts[3] != 9 {
			r.Errorf("grants at 0, 1, 2, 3 s: %v, want 3 5 7 9", counts)
		}
		before := len(c.grants())
		for range 5 {
			r.kill()
			c, _ = r.join("i", 100)
			before += len(c.newGrants())
		}
		if before > 9+1 {
			r.Errorf("%d grants after five crashes in a row, want at most 9 + 1", before)
		}
	})
}

// T13: each of several queues is granted at its own rate: the slowest, which is the first by name,
// holds up no other, and neither does a queue whose next grant is due at the same instant.
func TestRateLimitsOfSeveralQueues(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		other := Space{Tenant: "other", Workspace: home.Workspace}
		for name, rate := range map[string]float64{"a": 0.01, "b": 1, "c": 1} {
			for _, s := range []Space{home, other} {
				if _, err := r.UpdateQueue(r.Context(), s, name, func(s *lease.Settings) { s.Rate = lease.Rate{PerSecond: rate, Burst: 1} }); err != nil {
					r.Fatal(err)
				}
				specs := many(20)
				for _, spec := range specs {
					spec.Queue = name
					if err := spec.Fill(lease.DefaultLimits()); err != nil {
						r.Fatal(err)
					}
				}
				if _, _, err := r.Submit(r.Context(), s, specs, make([]lease.Digest, len(specs))); err != nil {
					r.Fatal(err)
				}
			}
		}
		for _, s := range []Space{home, other} {
			c := r.joinFor(Wants{Space: s, Worker: "w", Queues: []string{"a", "b", "c"}}, 100)
			defer func() {
				granted := map[string]int{}
				for _, g := range c.grants() {
					granted[g.Task.Spec.Queue]++
				}
				if want := (map[string]int{"a": 1, "b": 4, "c": 4}); !maps.Equal(granted, want) {
					r.Errorf("after 3.5 s tenant %s has got %v tasks of each queue, want %v", s.Tenant, granted, want)
				}
			}()
		}
		time.Sleep(3500 * time.Millisecond)
	})
}

// T13: earlier grants count under new settings, too. Neither a pause nor a new rate allows the
// burst again: otherwise a change of the settings would evade the rate limit.
func TestUpdateDoesNotRenewTheBurst(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		rate := func(perSecond float64, burst uint32) func(*lease.Settings) {
			return func(s *lease.Settings) { s.Rate = lease.Rate{PerSecond: perSecond, Burst: burst} }
		}
		r.setQueue(rate(2, 4))
		r.submit(many(50)...)
		c, _ := r.join("i", 50)
		for _, step := range []struct {
			what   string
			change func(*lease.Settings)
			wait   time.Duration
			want   int
		}{
			{"the burst", func(*lease.Settings) {}, 0, 4},
			{"a pause", func(s *lease.Settings) { s.Paused = true }, 0, 4},
			{"the end of the pause", func(s *lease.Settings) { s.Paused = false }, 0, 4},
			{"another setting", func(s *lease.Settings) { s.MaxInflight = 40 }, 0, 4},
			{"a higher rate", rate(4, 4), 0, 4},
			{"a second of the higher rate", func(*lease.Settings) {}, time.Second, 8},
			{"a larger burst", rate(4, 6), 0, 10},
			{"a lower rate and a smaller burst", rate(1, 3), 0, 10},
			{"two seconds of the lower rate", func(*lease.Settings) {}, 2 * time.Second, 12},
		} {
			r.setQueue(step.change)
			time.Sleep(step.wait)
			if n := len(c.grants()); n != step.want {
				r.Errorf("%d grants after %s, want %d", n, step.what, step.want)
			}
		}
	})
}

// T13: a new rate counts from the update on. What the old rate had given back by then is not taken
// away, and what it had not is not given back either.
func TestNewRateDoesNotCountForThePast(t *testing.T) {
	t.Attr("rules", "T13")
	for _, c := range []struct {
		what     string
		from, to lease.Rate
		want     int
	}{
		{"a lower rate", lease.Rate{PerSecond: 10, Burst: 5}, lease.Rate{PerSecond: 0.001, Burst: 5}, 5},
		{"a higher rate", lease.Rate{PerSecond: 0.001, Burst: 5}, lease.Rate{PerSecond: 10, Burst: 5}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			run(t, func(r *rig) {
				r.setQueue(func(s *lease.Settings) { s.Rate = c.from })
				r.submit(many(20)...)
				if n := len(r.lease(20, 0)); n != 5 {
					r.Fatalf("%d grants, want the burst of 5", n)
				}
				time.Sleep(10 * time.Second)
				r.setQueue(func(s *lease.Settings) { s.Rate = c.to })
				if n := len(r.lease(20, 0)); n != c.want {
					r.Errorf("%d grants at once after the update to %s, want %d", n, c.what, c.want)
				}
			})
		})
	}
}

// joinAndWantNoGrants joins a worker and checks that it is granted nothing for 19 minutes.
func (r *rig) joinAndWantNoGrants() {
	r.Helper()
	c, _ := r.join("i", 5)
	time.Sleep(19 * time.Minute)
	if n := len(c.grants()); n != 0 {
		r.Errorf("%d grants within 19 minutes, want none", n)
	}
}

// T13: the wait for a slow rate limit (one grant per hour) continues over restarts and crashes: it
// does not begin again, and the grant before them still counts.
func TestSlowRateOverRestarts(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Rate.PerSecond = 1.0 / 3600 })
		r.submit(many(5)...)
		c, _ := r.join("i", 5)
		if n := len(c.grants()); n != 1 {
			r.Fatalf("%d grants at first, want 1", n)
		}
		r.say(lease.KindComplete, c.grants()[0]) // because the engine saves the clock regularly while leases are live
		for _, restart := range []func(){r.kill, func() { r.restart(Config{}) }, r.kill} {
			restart()
			r.joinAndWantNoGrants()
		}
		time.Sleep(59 * time.Second)
		r.kill()
		c, _ = r.join("i", 5)
		// A9: a crash costs an eighth of the time since the start, at most
		time.Sleep(2*time.Minute + time.Second + 19*time.Minute/8 + time.Minute/8)
		if n := len(c.grants()); n != 1 {
			r.Errorf("%d grants after an hour, and what two crashes may have cost, want 1", n)
		}
	})
}

// T13: queues of an earlier format do not store how much of their rate limit is used up. The first
// start treats the limit as used up; later starts must not do so again.
func TestSlowRateOfAnEarlierFormat(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Rate.PerSecond = 1.0 / 3600 })
		r.submit(many(2)...)
		var b store.Batch
		err := r.st.View(func(rd store.Reader) error {
			return records.Queues(rd, func(q records.Queue) error {
				q.Bucket = nil
				records.PutQueue(&b, q)
				return nil
			})
		})
		if err := errors.Join(err, r.st.Commit(r.Context(), &b)); err != nil {
			r.Fatal(err)
		}
		for range 3 {
			r.kill()
			r.joinAndWantNoGrants()
		}
		r.kill()
		c, _ := r.join("i", 5)
		time.Sleep(3*time.Minute + time.Second + 3*19*time.Minute/8)
		if n := len(c.grants()); n != 1 {
			r.Errorf("%d grants after an hour, and what three crashes may have cost, want 1", n)
		}
	})
}

// T13: when a limit is set for the first time, burst grants are allowed at once, also if the queue
// is older than the last start. A restored backup does not have the grants after it, so its limits
// count as used up.
func TestRateLimitAfterAStart(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.submit(many(9)...)
		r.kill()
		r.setQueue(func(s *lease.Settings) { s.Rate = lease.Rate{PerSecond: 1, Burst: 3} })
		if g := r.lease(9, 0); len(g) != 3 {
			r.Errorf("%d grants with a new limit, want 3", len(g))
		}
		time.Sleep(10 * time.Second)
		r.restart(Config{Recovery: RestoredStore})
		if g := r.lease(9, 0); len(g) != 0 {
			r.Errorf("%d grants at the start of a restored store, want none", len(g))
		}
		time.Sleep(time.Second)
		if g := r.lease(9, 0); len(g) != 1 {
			r.Errorf("%d grants a second later, want 1", len(g))
		}
	})
}

// T13, T3: at its submit, a task takes the fields that its own retry policy does not set from that
// of the queue. A later change of the queue's policy does not change the task.
func TestRetryPolicyOfTheQueue(t *testing.T) {
	t.Attr("rules", "T3 T13")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Retry = lease.RetryPolicy{MaxAttempts: 1, InitialBackoff: time.Minute} })
		own := work()
		own.Retry.MaxAttempts = 2
		tasks := r.submit(work(), own)
		r.setQueue(func(s *lease.Settings) { s.Retry = lease.RetryPolicy{} })
		for i, want := range []lease.RetryPolicy{
			{MaxAttempts: 1, MaxLosses: 3, InitialBackoff: time.Minute, Multiplier: 2, MaxBackoff: 5 * time.Minute},
			{MaxAttempts: 2, MaxLosses: 3, InitialBackoff: time.Minute, Multiplier: 2, MaxBackoff: 5 * time.Minute},
		} {
			if got := tasks[i].Spec.Retry; !reflect.DeepEqual(got, want) {
				r.Errorf("task %d has the retry policy %+v, want %+v", i, got, want)
			}
		}
	})
}

// T13: a queue exists from its first update on, and its settings survive a crash. A refused update
// changes nothing and makes no queue.
func TestQueueExistsFromItsFirstUpdate(t *testing.T) {
	t.Attr("rules", "T13")
	run(t, func(r *rig) {
		r.join("i", 1) // a waiting worker makes no queue
		if _, found, err := r.Queue(r.Context(), home, "q", 0); found || err != nil {
			r.Errorf("before its first update the queue is found: %v (%v), want false", found, err)
		}
		for _, workspace := range []Space{home, {Tenant: home.Tenant, Workspace: "new"}} {
			_, err := r.UpdateQueue(r.Context(), workspace, "q", func(s *lease.Settings) { s.Rate.Burst = 1 })
			var field *lease.FieldError
			if !errors.As(err, &field) || field.Field != "rate_limit.per_second" {
				r.Errorf("a burst without a rate: %v, want a FieldError of rate_limit.per_second", err)
			}
		}
		if _, found, _ := r.Queue(r.Context(), home, "q", 0); found {
			r.Error("bad settings made a queue")
		}
		r.consistent()
		r.setQueue(func(s *lease.Settings) { s.MaxInflight, s.Weights = 7, map[string]float64{"gold": 3} })
		r.kill()
		if q := r.queueInfo(); q.Settings.MaxInflight != 7 || q.Settings.Weights["gold"] != 3 || q.CreatedAt == 0 {
			r.Errorf("after a crash the queue is %+v, want max_inflight 7, the weight 3 of gold and a time in CreatedAt", q)
		}
	})
}

// T12: a thousand tasks of one fairness key wait. The single task of another key waits for one turn
// at most. Within a key the higher priority goes first.
func TestFairnessKeysTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		flood := many(1000)
		for _, s := range flood {
			s.FairnessKey = "flood"
		}
		r.submit(flood...)
		r.lease(10, 0)
		single := work()
		single.FairnessKey, single.Priority = "single", -5
		urgent := work()
		urgent.FairnessKey, urgent.Priority = "flood", 5
		ids := r.submit(single, urgent)
		g := r.lease(3, 0)
		if !contains(g[:2], ids[0].ID) || !contains(g[:2], ids[1].ID) {
			r.Errorf("the next tasks are %s, want %d and %d among the first two", sequencesOf(g), ids[0].ID.Seq, ids[1].ID.Seq)
		}
	})
}

func contains(g []Granted, id lease.TaskID) bool {
	for i := range g {
		if g[i].Task.ID == id {
			return true
		}
	}
	return false
}

// T12: keys get turns in proportion to their weights, however many tasks each has, also over
// restarts.
func TestFairnessWeights(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"gold": 3, "lead": 0.5} })
		for key, n := range map[string]int{"gold": 400, "": 800, "lead": 600} {
			specs := many(n)
			for _, s := range specs {
				s.FairnessKey = key
			}
			r.submit(specs...)
		}
		got := map[string]int{}
		for range 9 {
			for _, g := range r.lease(50, 0) {
				got[g.Task.Spec.FairnessKey]++
			}
			r.restart(Config{})
		}
		if got["gold"] < 280 || got["gold"] > 320 || got[""] < 90 || got[""] > 110 || got["lead"] < 40 || got["lead"] > 60 {
			r.Errorf("450 grants by key: %v; want about 300 of gold, 100 without a key and 50 of lead", got)
		}
	})
}

// leaseTypes leases up to n tasks of the given types.
func (r *rig) leaseTypes(n int, types ...string) []Granted {
	r.Helper()
	g, err := r.Lease(r.Context(), LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}, Types: types}, Max: n})
	if err != nil {
		r.Fatal(err)
	}
	return g
}

// T12: if no taker wanted the tasks of a key for a while, the key does not get these turns later.
func TestKeyThatNobodyWantedSavesNoTurns(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		for _, kind := range []string{"rare", "common"} {
			specs := many(500)
			for _, s := range specs {
				s.Type, s.FairnessKey = kind, kind
			}
			r.submit(specs...)
		}
		r.leaseTypes(200, "common")
		got := map[string]int{}
		for _, g := range r.leaseTypes(100, "common", "rare") {
			got[g.Task.Spec.Type]++
		}
		if got["rare"] < 45 || got["rare"] > 55 {
			r.Errorf("100 grants by type: %v; want about half of each", got)
		}
	})
}

// T12: if a fairness key often has a single task, and none in between, it gets no more than its
// share, and does not reduce the shares of the other keys.
func TestSingleTasksTakeNoTurnsFromOthers(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Weights = map[string]float64{"gold": 9, "silver": 3} })
		for _, key := range []string{"gold", "silver", "lead"} {
			specs := many(500)
			for _, s := range specs {
				s.FairnessKey = key
			}
			r.submit(specs...)
		}
		got := map[string]int{}
		for range 40 { // 10 grants each time; by its weight, 1 of 14, the key single gets less than one of them
			single := work()
			single.FairnessKey = "single"
			r.submit(single)
			for _, g := range r.lease(10, 0) {
				got[g.Task.Spec.FairnessKey]++
			}
		}
		for key, want := range map[string]int{"gold": 257, "silver": 86, "lead": 29, "single": 29} {
			if n := got[key]; n < want-2 || n > want+2 {
				r.Errorf("400 grants by key: %v; want %d of %s, at most 2 more or less", got, want, key)
			}
		}
	})
}

// T12: a key that waits gets its turn even if two new keys arrive in each round.
func TestNewKeysDoNotStarveAnother(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		old := many(2)
		old[0].FairnessKey, old[1].FairnessKey = "old", "old"
		r.submit(old...)
		r.lease(1, 0)
		for i := range 2 * keptFlows {
			s := many(2)
			s[0].FairnessKey, s[1].FairnessKey = "new"+strconv.Itoa(i), "newer"+strconv.Itoa(i)
			r.submit(s...)
			if g := r.lease(1, 0); g[0].Task.Spec.FairnessKey == "old" {
				return
			}
		}
		r.Error("the second task of the old key was never granted")
	})
}

// T12: if many keys come one after the other, with one task each, at most keptFlows of them and a
// few more stay in memory, also if their tasks end without a grant.
func TestFairnessKeysAreForgotten(t *testing.T) {
	t.Attr("rules", "T12")
	bound(t, 128, &keptFlows)
	for name, end := range map[string]func(r *rig, task *lease.Task){
		"granted": func(r *rig, _ *lease.Task) {
			g := r.leaseTypes(1, "")
			if len(g) != 1 {
				r.Fatalf("leased %d tasks, want 1", len(g))
			}
			r.say(lease.KindComplete, g[0])
		},
		"cancelled": func(r *rig, task *lease.Task) {
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: task.ID}); err != nil {
				r.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				stuck := work()
				stuck.Type, stuck.FairnessKey = "nobody takes it", "stuck"
				r.submit(stuck)
				for i := range 3 * keptFlows {
					s := work()
					s.FairnessKey = time.Duration(i).String()
					end(r, r.submit(s)[0])
				}
				if n := onLoop(r, func() int { return len(r.spaces.named(home).queues["q"].flows) }); n > keptFlows+2 {
					r.Errorf("%d flows are in memory, want at most %d", n, keptFlows+2)
				}
			})
		})
	}
}

// T12: a tenant with thousands of commands in the inbox delays another tenant's single command by
// one turn at most.
func TestTenantsTakeTurns(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		other := Space{Tenant: "other", Workspace: "default"}
		flood := make(chan struct{}, 1)
		busy := make(chan struct{})
		// the loop stands still in this command
		if err := r.inbox.put("x", op{run: func() { flood <- struct{}{}; <-busy }}); err != nil {
			r.Fatal(err)
		}
		<-flood
		ran := make([]string, 0, 5001)
		for range 5000 {
			if err := r.inbox.put(home.Tenant, op{run: func() { ran = append(ran, "flood") }}); err != nil {
				r.Fatal(err)
			}
		}
		if err := r.inbox.put(other.Tenant, op{run: func() { ran = append(ran, "single") }}); err != nil {
			r.Fatal(err)
		}
		close(busy)
		synctest.Wait()
		if len(ran) != 5001 || ran[0] != "single" && ran[1] != "single" {
			r.Errorf("%d commands ran, the first two of %v; want 5001, and single among the first two", len(ran), ran[:2])
		}
	})
}

// T12: what a page of the list of queues costs the loop does not depend on how many queues there
// are.
func TestPageOfQueuesReadsNoOtherQueues(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		page := func() []QueueInfo {
			listed, err := r.Queues(r.Context(), home, "q", 2, 0)
			if err != nil {
				r.Fatal(err)
			}
			return listed
		}
		submit := func(from, to int) {
			var specs []*lease.Spec
			for i := from; i < to; i++ {
				spec := work()
				spec.Queue = "q" + strconv.Itoa(i)
				specs = append(specs, spec)
			}
			r.submit(specs...)
		}
		submit(0, 10)
		few := testing.AllocsPerRun(100, func() { page() })
		submit(10, 1000)
		if many := testing.AllocsPerRun(100, func() { page() }); many > few+1 {
			r.Errorf("a page of two of 1,000 queues makes %v allocations, and one of two of 10 queues %v, want the same number", many, few)
		}
		if listed := page(); len(listed) != 2 || listed[0].Name != "q0" || listed[1].Name != "q1" {
			r.Errorf("the page is %+v, want q0 and q1", listed)
		}
	})
}

// T9: a queue counts its ended tasks by state for as long as they are there, also over a crash: a
// retry, an adopted result, a delete and the end of the retention change the counts with the task.
func TestEndedTasksAreCounted(t *testing.T) {
	t.Attr("rules", "T9")
	run(t, func(r *rig) {
		want := func(when string, completed, failed, cancelled uint64) {
			r.Helper()
			for _, after := range []string{"", ", after a crash"} {
				if q := r.queueInfo(); q.Completed != completed || q.Failed != failed || q.Cancelled != cancelled {
					r.Errorf("%s%s: %d COMPLETED, %d FAILED and %d CANCELLED tasks are counted, want %d, %d and %d",
						when, after, q.Completed, q.Failed, q.Cancelled, completed, failed, cancelled)
				}
				r.kill()
			}
		}
		task := func(attempts uint32) lease.TaskID {
			spec := work()
			spec.Retry.MaxAttempts, spec.Retry.MaxLosses, spec.Retry.InitialBackoff, spec.Retention = attempts, 1,
				time.Minute, time.Hour
			return r.submit(spec)[0].ID
		}
		do := func(_ *lease.Task, err error) {
			r.Helper()
			if err != nil {
				r.Fatal(err)
			}
		}
		remove := func(id lease.TaskID) {
			r.Helper()
			do(nil, r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: id}))
		}
		task(1)
		want("a task waits", 0, 0, 0)
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		want("a task is completed", 1, 0, 0)
		again := task(2)
		r.say(lease.KindFail, r.lease(1, 0)[0])
		want("a failed attempt is not the last", 1, 0, 0)
		time.Sleep(2 * time.Minute)
		r.say(lease.KindFail, r.lease(1, 0)[0])
		want("a task has failed", 1, 1, 0)
		late := task(1)
		lost := r.lease(1, 0)[0]
		r.say(lease.KindStart, lost)
		time.Sleep(lease.DefaultHeartbeatTimeout)
		r.say(lease.KindComplete, lost) // too late, and kept
		want("a task is lost for good", 1, 2, 0)
		do(r.Adopt(r.Context(), lease.Adopt{Tenant: home.Tenant, Task: late}))
		want("its late result is adopted", 2, 1, 0)
		cancelled := task(1)
		do(r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: cancelled}))
		want("a task is cancelled", 2, 1, 1)
		do(r.Retry(r.Context(), lease.Retry{Tenant: home.Tenant, Task: again}))
		want("the failed task is retried", 2, 0, 1)
		do(r.Retry(r.Context(), lease.Retry{Tenant: home.Tenant, Task: cancelled}))
		want("the cancelled task is retried", 2, 0, 0)
		r.inOneBatch(func() {
			go remove(again)
			go func() { do(r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: cancelled})) }()
			synctest.Wait()
		})
		want("one is deleted and one cancelled", 2, 0, 1)
		remove(late)
		want("a completed task is deleted", 1, 0, 1)
		_, err := r.Sweep(r.Context(), Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
			return lease.Delete{Tenant: home.Tenant, Task: t.ID}, false
		}})
		do(nil, err)
		task(1)
		r.say(lease.KindFail, r.lease(1, 0)[0])
		task(1)
		want("the ended ones are deleted, another one has failed, and one waits", 0, 1, 0)
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		want("its retention is over", 0, 0, 0)
	})
}

// T13: a queue exists as long as it has tasks, ended ones included, workers or settings. An unused
// one leaves neither a record nor anything in memory, so that names that are used once do not fill
// them. A later submit makes the queue anew.
func TestUnusedQueueIsForgotten(t *testing.T) {
	t.Attr("rules", "T13")
	task := func(r *rig) {
		spec := work()
		spec.Retention = time.Hour
		r.submit(spec)
		r.say(lease.KindComplete, r.lease(1, 0)[0])
	}
	retained := func() { time.Sleep(time.Hour + time.Second); synctest.Wait() }
	exists := func(r *rig, when string, want bool) {
		r.Helper()
		synctest.Wait()
		_, found, err := r.Queue(r.Context(), home, "q", 0)
		if err != nil || found != want {
			r.Errorf("%s: the queue exists: %v (%v), want %v", when, found, err, want)
		}
		inMemory := onLoop(r, func() bool { return r.spaces.named(home).queues["q"] != nil })
		stored := 0
		err = r.st.View(func(rd store.Reader) error {
			return records.Queues(rd, func(records.Queue) error { stored++; return nil })
		})
		if err != nil || inMemory != want || (stored == 1) != want {
			r.Errorf("%s: in memory: %v, records: %d (%v), want the queue in both: %v", when, inMemory, stored, err, want)
		}
	}
	for name, use := range map[string]func(r *rig){
		"no more tasks": func(r *rig) {
			task(r)
			exists(r, "a task has ended", true)
			retained()
		},
		"deleted": func(r *rig) {
			id := r.submit(work())[0].ID
			if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: id}); err != nil {
				r.Fatal(err)
			}
		},
		"the last worker leaves": func(r *rig) {
			task(r)
			c, _ := r.join("i", 1)
			retained()
			exists(r, "a worker is connected", true)
			r.Leave(c.Member, true)
		},
		"a worker was connected until a crash": func(r *rig) {
			task(r)
			r.join("i", 1)
			retained()
			r.kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				use(r)
				exists(r, "nothing needs it", false)
				task(r)
				exists(r, "another task has ended", true)
				r.restart(Config{})
				exists(r, "after a start", true)
			})
		})
	}
	run(t, func(r *rig) {
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		r.setQueue(func(s *lease.Settings) { s.Paused = false })
		task(r)
		retained()
		exists(r, "settings", true)
		r.kill()
		exists(r, "settings, after a crash", true)
	})
}

// T13: a queue is also forgotten if its last tasks are deleted while nobody takes any, in lines
// that are longer than what memory holds of them, or that were never read since the start. The loop
// drops only a few of its lines at a time.
func TestQueueWithUnreadLinesIsForgotten(t *testing.T) {
	t.Attr("rules", "T13")
	bound(t, 4, &lineHead)
	bound(t, 3, &dropsPerTurn)
	for name, before := range map[string]func(r *rig){"long lines": func(*rig) {}, "after a start": (*rig).kill} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				var specs []*lease.Spec
				for n := range 100 {
					s := work()
					s.Type, s.FairnessKey = fmt.Sprint("t", n%10), fmt.Sprint("f", n%2)
					specs = append(specs, s)
				}
				r.submit(specs...)
				before(r)
				swept, err := r.Sweep(r.Context(), Sweep{Space: home, Choose: func(task *lease.Task) (lease.Command, bool) {
					return lease.Delete{Tenant: home.Tenant, Task: task.ID}, false
				}})
				if err != nil || swept.Changed != 100 {
					r.Fatalf("%+v (%v), want 100 tasks deleted", swept, err)
				}
				synctest.Wait()
				if _, found, err := r.Queue(r.Context(), home, "q", 0); err != nil || found {
					r.Errorf("the queue exists: %v (%v), want it forgotten", found, err)
				}
			})
		})
	}
}
