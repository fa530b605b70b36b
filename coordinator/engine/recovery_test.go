package engine

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// What happens to leases at a restart.

// A9: the time for which the coordinator was down does not count towards the heartbeat timeout. A
// lease whose worker stays silent still expires.
func TestDowntimeIsNotCounted(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)
		r.say(lease.KindStart, g[0])
		r.shutDown()
		time.Sleep(24 * time.Hour)
		r.start(Config{})
		time.Sleep(lease.DefaultHeartbeatTimeout - 2*time.Second)
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
		time.Sleep(lease.DefaultHeartbeatTimeout + time.Second)
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCancelled, lease.LeaseExpired)
	})
}

// A9: a lease has the same time left after a restart as before it, also if the coordinator had
// served for an hour before the grant.
func TestRemainingTimeIsKeptOverARestart(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		time.Sleep(time.Hour)
		id := r.submit(work())[0].ID
		r.say(lease.KindStart, r.lease(1, 0)[0])
		time.Sleep(lease.DefaultHeartbeatTimeout - 10*time.Second)
		r.restart(Config{})
		time.Sleep(9 * time.Second)
		if r.version(id).Lease == nil {
			r.Error("the lease ended before its heartbeat timeout")
		}
		time.Sleep(2*time.Second + saveClock)
		if r.version(id).Lease != nil {
			r.Error("the silent lease is live after its heartbeat timeout")
		}
	})
}

// A9: a slow start counts as downtime, because no worker can be heard during it.
func TestSlowStartIsNotCounted(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)
		r.say(lease.KindStart, g[0])
		r.shutDown()
		r.open(Config{})
		time.Sleep(time.Hour)
		r.serve()
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
	})
}

// A9: the serving clock is saved while leases are live, so that a silent lease ends even if the
// coordinator crashes every 10 s.
func TestCrashesKeepNoSilentLeaseAlive(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		r.say(lease.KindStart, r.lease(1, 0)[0])
		for served := time.Duration(0); served < 2*lease.DefaultHeartbeatTimeout; served += 10 * time.Second {
			live := r.version(id).Lease != nil
			if live && served > lease.DefaultHeartbeatTimeout+20*time.Second || !live && served < lease.DefaultHeartbeatTimeout {
				r.Fatalf("after %v, with a crash each 10 s, the lease is live: %v; want it live for %v and ended 20 s later",
					served, live, lease.DefaultHeartbeatTimeout)
			}
			time.Sleep(10 * time.Second)
			r.kill()
		}
	})
}

// A9, T13: the serving clock is saved while a task or a queue waits for it, so that short and long
// waits end even if the coordinator crashes often and does nothing else. A crash costs at most an
// eighth of what is left and of the time since the start, or saveWait.
func TestCrashesKeepNoTaskWaiting(t *testing.T) {
	t.Attr("rules", "A9 T13")
	retry := func(r *rig, wait time.Duration) { r.failOnce(wait) }
	rate := func(r *rig, wait time.Duration) {
		r.setQueue(func(s *lease.Settings) { s.Rate.PerSecond = 1 / wait.Seconds() })
		r.submit(many(2)...)
		r.say(lease.KindComplete, r.lease(1, 0)[0])
	}
	for _, c := range []struct {
		what        string
		begin       func(r *rig, wait time.Duration)
		wait, every time.Duration // every: time between two crashes
		most        time.Duration // time of service until the wait has ended
	}{
		{"retry", retry, time.Second, 400 * time.Millisecond, 1600 * time.Millisecond},
		{"retry", retry, 3 * time.Second, 1500 * time.Millisecond, 4500 * time.Millisecond},
		{"retry", retry, time.Hour, 5 * time.Minute, 70 * time.Minute},
		{"grant", rate, 5 * time.Second, 1500 * time.Millisecond, 6 * time.Second},
		{"grant", rate, time.Hour, 5 * time.Minute, 70 * time.Minute},
	} {
		t.Run(fmt.Sprint(c.what, " after ", c.wait), func(t *testing.T) {
			run(t, func(r *rig) {
				c.begin(r, c.wait)
				var served time.Duration
				for got := 0; got == 0 && served <= c.most; served += c.every {
					r.kill()
					worker, _ := r.join("i", 1) // a queue waits for its rate limit only if somebody wants its tasks
					time.Sleep(c.every)
					got = len(worker.grants())
				}
				if served < c.wait || served > c.most {
					r.Errorf("a wait of %v took %v of service or more, with a crash each %v; want %v at most",
						c.wait, served, c.every, c.most)
				}
			})
		})
	}
}

// A9: while a task or a queue waits and nothing else happens, the clock is saved a small number of
// times, however long the wait is.
func TestWaitsAreSavedSeldom(t *testing.T) {
	t.Attr("rules", "A9")
	for _, c := range []struct {
		wait    time.Duration
		commits int32 // one each eighth of what is left, and one each saveWait at the end
	}{
		{time.Second, 3},
		{3 * time.Second, 11},
		{30 * time.Second, 28},
		{time.Hour, 64},
	} {
		for what, begin := range map[string]func(*rig, time.Duration){"retry": (*rig).failOnce, "grant": (*rig).useUpRate} {
			run(t, func(r *rig) {
				time.Sleep(c.wait) // so that the time since the start is no reason to save the clock more often
				begin(r, c.wait)
				if n := r.commitsIn(c.wait - time.Millisecond); n != c.commits {
					r.Errorf("%d commits in a wait of %v for a %s, want %d", n, c.wait, what, c.commits)
				}
			})
		}
	}
}

// A9: when a queue need no longer wait for its rate limit, the clock is not saved for it.
func TestClockIsNotSavedForAWaitThatIsOver(t *testing.T) {
	t.Attr("rules", "A9")
	for what, end := range map[string]func(r *rig){
		"the queue is paused":       func(r *rig) { r.setQueue(func(s *lease.Settings) { s.Paused = true }) },
		"no task is there any more": func(r *rig) { r.deleteWaiting() },
		"the limit is gone, and the tasks": func(r *rig) {
			r.setQueue(func(s *lease.Settings) { s.Rate, s.Paused = lease.Rate{}, true })
			r.deleteWaiting()
		},
	} {
		run(t, func(r *rig) {
			r.useUpRate(4 * time.Hour)
			time.Sleep(time.Hour)
			end(r)
			if n := r.commitsIn(2 * time.Hour); n != 0 {
				r.Errorf("%s: %d commits in 2 h, want none", what, n)
			}
		})
	}
}

// useUpRate lets the queue wait for its rate limit from now on. A worker wants its tasks.
func (r *rig) useUpRate(wait time.Duration) {
	r.Helper()
	r.setQueue(func(s *lease.Settings) { s.Rate = lease.Rate{PerSecond: 1 / wait.Seconds(), Burst: 1} })
	r.submit(many(2)...)
	r.say(lease.KindComplete, r.lease(1, 0)[0])
	r.join("i", 1)
}

// deleteWaiting deletes the tasks that wait.
func (r *rig) deleteWaiting() {
	r.Helper()
	_, err := r.Sweep(r.Context(), Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
		if !isReady(t) {
			return nil, false
		}
		return lease.Delete{Tenant: home.Tenant, Task: t.ID}, false
	}})
	if err != nil {
		r.Fatal(err)
	}
}

// commitsIn counts the commits in a time in which the test does nothing.
func (r *rig) commitsIn(d time.Duration) int32 {
	synctest.Wait()
	var commits atomic.Int32
	r.beforeCommits(func() { commits.Add(1) })
	defer r.st.(*memstore.Store).SetHook(nil)
	time.Sleep(d)
	return commits.Load()
}

// failOnce submits a task, whose first attempt fails. The next one is due after exactly this time.
func (r *rig) failOnce(retryAfter time.Duration) {
	r.Helper()
	r.submit(work())
	g := r.lease(1, 0)[0]
	f := &lease.Failure{Message: "broken", RetryAfter: retryAfter}
	if _, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{{Kind: lease.KindFail, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Failure: f}}); err != nil {
		r.Fatal(err)
	}
}

// A9: --recovery=invalidate ends all leases, also for later starts; this does not count as a loss.
func TestInvalidateEndsOlderLeases(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)
		r.restart(Config{Recovery: InvalidateLeases})
		if n := r.Invalidated(); n != 1 {
			r.Errorf("the start has ended %d leases, want 1", n)
		}
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCancelled, lease.CoordinatorRecovered)
		again := r.lease(1, 0)
		if len(again) != 1 || again[0].Token <= g[0].Token {
			r.Fatalf("leased %+v, want the task again with a token above %d", again, g[0].Token)
		}
		if again[0].Task.Losses != 0 {
			r.Error("the recovery was counted as a loss")
		}
		r.restart(Config{})
		r.want(r.say(lease.KindComplete, again[0]), lease.VerdictCommitted, lease.None)
	})
}

// T6: the deadline of a leased task ends it on time also after a restart, although its lease is
// still live.
func TestDeadlineOfALeasedTaskHoldsAfterARestart(t *testing.T) {
	t.Attr("rules", "T6")
	run(t, func(r *rig) {
		spec := work()
		spec.HeartbeatTimeout = time.Hour
		spec.Deadline = lease.WallOf(time.Now().Add(10 * time.Second))
		task := r.submit(spec)[0]
		r.want(r.say(lease.KindStart, r.lease(1, 0)[0]), lease.VerdictCommitted, lease.None)
		r.kill()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		if got := r.version(task.ID); got.Rest != lease.Failed {
			r.Errorf("100 ms after its deadline the task is %v, want FAILED", got.State())
		}
	})
}

// A9: after a start, all lines and the parked tasks of all concurrency keys are on disk only. To
// read them, the loop waits for a small number of commits, not for one for each of them: it handles
// no heartbeat while it waits.
func TestFirstReadingsAfterAStartShareCommits(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		const n, most = 200, 5 // keys and lines, and commits
		for i := range n {
			inLine := work()
			inLine.Queue, inLine.FairnessKey = "lines", fmt.Sprint("line", i)
			r.submit(specWithKey(fmt.Sprint("key", i), 1), specWithKey(fmt.Sprint("key", i), 1), inLine)
		}
		if held := r.lease(2*n, 0); len(held) != n {
			r.Fatalf("%d leases, want %d: one of each key", len(held), n)
		}
		r.shutDown()
		commits := 0
		r.beforeCommits(func() { commits++ })
		wantFew := func(when string) {
			r.Helper()
			if synctest.Wait(); commits > most {
				r.Errorf("%d commits %s, want at most %d", commits, when, most)
			}
			commits = 0
		}
		r.start(Config{Recovery: InvalidateLeases})
		synctest.Wait()
		if q := r.queueInfo(); q.Ready != 2*n || q.Parked != 0 {
			r.Errorf("%d tasks are READY and %d of them parked, want %d and none: no key is held", q.Ready, q.Parked, 2*n)
		}
		wantFew("until no task was parked")
		g, err := r.Lease(r.Context(), LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"lines"}}, Max: n})
		if err != nil || len(g) != n {
			r.Errorf("%d leases (%v), want %d: the task of each line", len(g), err, n)
		}
		wantFew("until the tasks of all lines were leased")
	})
}

// T2: after a start, a grant reads only the line whose turn it is, however many kinds of tasks
// wait. To read all their lines would take seconds.
func TestFirstGrantAfterAStartReadsOneLine(t *testing.T) {
	t.Attr("rules", "T2")
	synctest.Test(t, func(t *testing.T) {
		const n, reads = 200, 5
		st := &countedReads{Store: memstore.New()}
		r := &rig{T: t, st: st}
		r.start(Config{})
		for i := range n {
			r.submitWith(func(s *lease.Spec) {
				s.Priority, s.Affinity = int32(i), &lease.Affinity{Key: fmt.Sprint("key", i)}
			})
		}
		r.restart(Config{})
		for i := range 3 {
			before := st.views.Load()
			g := r.lease(1, 0)
			if len(g) != 1 || g[0].Task.Spec.Priority != int32(n-1-i) {
				t.Fatalf("grant %d after the start is %v, want the task with the highest priority", i, g)
			}
			if views := st.views.Load() - before; views > reads {
				t.Errorf("the store was read %d times for a grant, want at most %d times", views, reads)
			}
		}
		r.shutDown()
	})
}

// A9: at a start, the parked tasks of a key that has no room are not read: there can be as many
// such keys as there are leases.
func TestStartReadsNoParkedTasksOfHeldKeys(t *testing.T) {
	t.Attr("rules", "A9")
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		st := &countedReads{Store: memstore.New()}
		r := &rig{T: t, st: st}
		r.start(Config{})
		for i := range n {
			key := fmt.Sprint("key", i)
			r.submit(specWithKey(key, 1), specWithKey(key, 1))
		}
		if held := r.lease(2*n, 0); len(held) != n {
			r.Fatalf("%d leases, want %d: one of each key", len(held), n)
		}
		r.shutDown()
		before := st.views.Load()
		r.start(Config{})
		synctest.Wait()
		if views := st.views.Load() - before; views >= n {
			r.Errorf("the store was read %d times by a start with %d held keys, want fewer", views, n)
		}
		r.shutDown()
	})
}

// A9, A8: a recovery gives room to many concurrency keys at once. Their parked tasks come back in
// several rounds, one right after the other.
func TestRecoveryUnparksInSteps(t *testing.T) {
	t.Attr("rules", "A9 A8")
	small(t)
	run(t, func(r *rig) {
		n := 5 * (triesPerTurn + unparksPerTurn)
		for i := range n {
			key := fmt.Sprint("key", i)
			r.submit(specWithKey(key, 1), specWithKey(key, 1))
		}
		if c, _ := r.join("i", 2*n); len(c.grants()) != n {
			r.Fatalf("%d leases, want %d: one of each key", len(c.grants()), n)
		}
		r.shutDown()
		r.open(Config{Recovery: InvalidateLeases})
		r.match()
		if back, most := n-int(r.spaces.total.parked), triesPerTurn+unparksPerTurn; back == 0 || back > most {
			r.Errorf("%d tasks came back in the first round, want some, and at most %d", back, most)
		}
		before := time.Now()
		r.serve()
		synctest.Wait()
		if q := r.queueInfo(); q.Parked != 0 || !time.Now().Equal(before) {
			r.Errorf("%d tasks are still parked after %v, want none at once", q.Parked, time.Since(before))
		}
	})
}

// A6: a bug in the loop is no orderly end: Run passes the panic on, so that the process ends before
// anybody is told what its batch decided.
func TestRunPassesPanicsOn(t *testing.T) {
	t.Attr("rules", "A6")
	e, err := Open(memstore.New(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = e.inbox.put("", op{
		must: true, run: func() { panic("a bug") },
		after: func(err error) { t.Error("the call has an answer:", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	passedOn := func() (p any) {
		defer func() { p = recover() }()
		return e.Run(t.Context())
	}()
	if passedOn != "a bug" {
		t.Fatalf("Run ended with %v, want the panic", passedOn)
	}
	e.intake.taken = nil
	e.stop(nil) // ends its goroutines, which a crash does not
}

// V15: the store remembers over all starts from which epoch on it has all grants: from the first
// one, or from that of the last restore.
func TestKnownEpochsOutliveStarts(t *testing.T) {
	t.Attr("rules", "V15")
	run(t, func(r *rig) {
		want := func(epoch, knownFrom uint32) {
			r.Helper()
			if got := r.rules.Authority; got.Epoch != epoch || got.KnownFrom != knownFrom {
				r.Errorf("in epoch %d, grants are known from %d on; want epoch %d and %d",
					got.Epoch, got.KnownFrom, epoch, knownFrom)
			}
		}
		r.submit(work())
		want(1, 1)
		r.restart(Config{Recovery: InvalidateLeases})
		want(2, 1)
		r.restart(Config{Recovery: InvalidateLeases})
		want(3, 1)
		r.restart(Config{})
		want(3, 1)
		backup := r.backup()
		r.restore(backup)
		want(4, 4)
		r.restart(Config{})
		want(4, 4)
		r.restart(Config{Recovery: InvalidateLeases})
		want(5, 4)
		r.kill()
		want(5, 4)

		// A store from before this was kept: a restore may have begun its epoch.
		r.shutDown()
		var b store.Batch
		records.PutIdentity(&b, records.Identity{Epoch: 9, Key: []byte("secret")})
		if err := r.st.Commit(r.Context(), &b); err != nil {
			r.Fatal(err)
		}
		r.start(Config{})
		want(9, 9)
		r.restart(Config{Recovery: InvalidateLeases})
		want(10, 9)
	})
}
