package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// V4, V5, V12: Start, Heartbeat and Complete under a live lease are COMMITTED. The same Complete
// again is replayed, and a Fail after it is rejected.
func TestLifeOfATask(t *testing.T) {
	t.Attr("rules", "V4 V5 V12")
	run(t, func(r *rig) {
		task := r.submit(work())[0]
		g := r.lease(1, 0)
		if len(g) != 1 || g[0].Task.ID != task.ID || g[0].Task.Attempt() != 1 {
			r.Fatalf("leased %v, want attempt 1 of task %v", g, task.ID)
		}
		r.want(r.say(lease.KindStart, g[0]), lease.VerdictCommitted, lease.None)
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCommitted, lease.None)
		again := r.say(lease.KindComplete, g[0])
		r.want(again, lease.VerdictCommitted, lease.None)
		if !again.Replayed {
			r.Error("V4: the answer to the repeated Complete is not marked as replayed")
		}
		r.want(r.say(lease.KindFail, g[0]), lease.VerdictRejected, lease.DuplicateReport)
	})
}

// T2: if far more tasks wait than are kept in memory, they are granted in their order, each task
// once. At the end at most maxIdle waiting tasks are in memory.
func TestTasksBeyondMemoryKeepTheirOrder(t *testing.T) {
	t.Attr("rules", "T2")
	bound(t, 1024, &lineHead)
	bound(t, 2048, &maxIdle)
	run(t, func(r *rig) {
		total := 3 * lineHead
		for range 3 {
			r.submit(many(lineHead)...)
		}
		last := uint64(0)
		for got := 0; got < total; {
			batch := r.lease(125, 0)
			if len(batch) == 0 {
				r.Fatalf("leased nothing after %d tasks, want all %d", got, total)
			}
			for _, g := range batch {
				if g.Task.ID.Seq <= last {
					r.Fatalf("task %d was granted after task %d, want the order of submit", g.Task.ID.Seq, last)
				}
				last = g.Task.ID.Seq
			}
			got += len(batch)
		}
		if more := r.lease(1, 0); len(more) != 0 {
			r.Errorf("leased %d tasks more than were submitted", len(more))
		}
		if n := onLoop(r, func() int { return len(r.set.tasks) - r.set.live }); n > maxIdle {
			r.Errorf("%d waiting tasks in memory, want at most %d", n, maxIdle)
		}
	})
}

// If a task is read from the store for its grant, its payload is read, too, if it is small, so that
// the dispatch does not have to read it. A large payload is left out, because it would fill the
// memory.
func TestTaskReadFromTheStoreIsGrantedWithItsSmallPayload(t *testing.T) {
	run(t, func(r *rig) {
		small, large := work(), work()
		small.Payload, large.Payload = make([]byte, records.SmallPayload), make([]byte, records.SmallPayload+1)
		r.submit(small, large)
		r.restart(Config{})
		g := r.lease(2, 0)
		if len(g) != 2 {
			r.Fatalf("leased %d of 2 tasks", len(g))
		}
		for i, want := range []int{records.SmallPayload, 0} {
			if got := len(g[i].Task.Spec.Payload); got != want {
				r.Errorf("task %d was granted with %d bytes of payload, want %d", i, got, want)
			}
		}
	})
}

// W11: a task that is granted in the batch of its submit has its payload in its dispatch. Once the
// batch is durable, only a small payload stays in memory with the lease.
func TestLiveLeaseKeepsOnlyASmallPayloadInMemory(t *testing.T) {
	t.Attr("rules", "W11")
	run(t, func(r *rig) {
		waits, _ := r.join("i", 3)
		sizes := []int{records.SmallPayload, records.SmallPayload + 1, lease.DefaultLimits().Payload}
		specs := many(len(sizes))
		for i, size := range sizes {
			specs[i].Payload = make([]byte, size)
		}
		r.submit(specs...)
		granted := waits.grants()
		kept := onLoop(r, func() (kept []int) {
			for _, g := range granted {
				kept = append(kept, len(r.set.leased(g.Task.ID).Spec.Payload))
			}
			return kept
		})
		if !slices.Equal(kept, []int{records.SmallPayload, 0, 0}) {
			r.Errorf("%d bytes of the payloads of live leases are in memory, want only those up to %d",
				kept, records.SmallPayload)
		}
		for i, g := range granted {
			if n := len(g.Task.Spec.Payload); n != sizes[i] {
				r.Errorf("task %d was granted with %d bytes of payload, want %d", i, n, sizes[i])
			}
		}
	})
}

// A6, A9: acknowledged tasks and live leases survive a crash: the reports of their workers are
// still COMMITTED.
func TestCrashKeepsWhatWasAcknowledged(t *testing.T) {
	t.Attr("rules", "A6 A9")
	run(t, func(r *rig) {
		r.submit(many(10)...)
		g := r.lease(3, 0)
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCommitted, lease.None)
		r.kill()
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCommitted, lease.None)
		r.want(r.say(lease.KindStart, g[1]), lease.VerdictCommitted, lease.None)
		r.want(r.say(lease.KindComplete, g[1]), lease.VerdictCommitted, lease.None)
		rest := r.lease(100, 0)
		if len(rest) != 7 {
			r.Errorf("leased %d tasks after the crash, want 7", len(rest))
		}
	})
}

// T8: within 100 ms after a lease expires, the task is granted to a call that waits. The old holder
// is told that it is superseded (V9).
func TestTaskOfAnExpiredLeaseIsGrantedWithin100ms(t *testing.T) {
	t.Attr("rules", "T8 V9")
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)
		r.say(lease.KindStart, g[0])
		began := time.Now()
		next := r.lease(1, 10*time.Minute)
		if len(next) != 1 || next[0].Task.Attempt() != 2 {
			r.Fatalf("leased %v, want attempt 2 of the task", next)
		}
		late := time.Since(began) - lease.DefaultHeartbeatTimeout
		if late < 0 || late > 100*time.Millisecond {
			r.Errorf("the task was granted %v after the lease expired, want 0 to 100 ms", late)
		}
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCancelled, lease.Superseded)
	})
}

// W4: tasks are pushed at once to a session that has free slots; when a task is finished, its slot
// is filled again.
func TestTasksArePushedUpToFreeSlots(t *testing.T) {
	t.Attr("rules", "W4")
	run(t, func(r *rig) {
		c, _ := r.join("i", 2)
		r.submit(many(5)...)
		if n := len(c.grants()); n != 2 {
			r.Fatalf("%d grants for 2 slots, want 2", n)
		}
		r.want(r.say(lease.KindComplete, c.grants()[0]), lease.VerdictCommitted, lease.None)
		if n := len(c.grants()); n != 3 {
			r.Errorf("%d grants after one slot was freed, want 3", n)
		}
	})
}

// W5: if a dispatch is not acknowledged in time, its lease ends, and this counts neither as a
// failure nor as a loss. The session gets no new work until it sends a frame.
func TestUnacknowledgedDispatch(t *testing.T) {
	t.Attr("rules", "W5")
	run(t, func(r *rig) {
		c, id := r.join("i", 1)
		r.submit(work())
		g := c.grants()[0]
		time.Sleep(lease.DefaultAckWithin + 100*time.Millisecond)
		if n := len(c.grants()); n != 1 {
			r.Fatalf("%d grants to a silent session", n)
		}
		r.want(r.say(lease.KindAck, g), lease.VerdictCancelled, lease.DispatchUnacked)
		r.Heard(home.Tenant, id)
		if n := len(c.grants()); n != 2 {
			r.Fatalf("%d grants after the session sent a frame, want 2", n)
		}
		if f := c.grants()[1].Task; f.Failures != 0 || f.Losses != 0 {
			r.Errorf("after an unacknowledged grant the task has %d failures and %d losses, want 0", f.Failures, f.Losses)
		}
	})
}

// W5: if another limit is shorter than the time for an acknowledgement, the lease ends before. In
// this case, too, the silent session gets no new work; otherwise it would take tasks away from
// workers that are alive.
func TestSilentSessionGetsNoWork(t *testing.T) {
	t.Attr("rules", "W5")
	const short = lease.DefaultAckWithin / 5
	for name, limit := range map[string]struct {
		set   func(*lease.Spec)
		cause lease.Reason
	}{
		"heartbeat_timeout": {func(s *lease.Spec) { s.HeartbeatTimeout = short }, lease.LeaseExpired},
		"attempt_timeout":   {func(s *lease.Spec) { s.AttemptTimeout = short }, lease.DeadlineExceeded},
		"deadline":          {func(s *lease.Spec) { s.Deadline = lease.Wall(time.Now().Add(short).UnixNano()) }, lease.DeadlineExceeded},
		"cancel_grace":      {func(s *lease.Spec) { s.CancelGrace = short }, lease.CancelTimeout},
	} {
		run(t, func(r *rig) {
			c, id := r.join("i", 1)
			spec := work()
			limit.set(spec)
			r.submit(spec, work())
			g := c.grants()[0]
			if limit.cause == lease.CancelTimeout {
				if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: g.Task.ID}); err != nil {
					r.Fatal(err)
				}
			}
			time.Sleep(lease.DefaultAckWithin)
			if n := len(c.grants()); n != 1 {
				r.Fatalf("%s: %d grants to a silent session, want 1", name, n)
			}
			r.want(r.say(lease.KindAck, g), lease.VerdictCancelled, limit.cause)
			r.Heard(home.Tenant, id)
			if n := len(c.grants()); n != 2 {
				r.Errorf("%s: %d grants after the session sent a frame, want 2", name, n)
			}
		})
	}
}

// W8: a lost stream revokes nothing: the next stream of the same instance takes over the leases,
// and they fill its slots. The next stream displaces an older one that is still open. If the
// displaced stream then sends a goodbye, no lease is requeued.
func TestLeasesFollowTheInstance(t *testing.T) {
	t.Attr("rules", "W8")
	run(t, func(r *rig) {
		first, _ := r.join("i", 1)
		r.submit(many(2)...)
		g := first.grants()[0]
		r.say(lease.KindStart, g)
		r.Leave(first.Member, false)
		second, _ := r.join("i", 1)
		if n := len(second.grants()); n != 0 {
			r.Fatalf("%d grants although a lease fills the one slot, want 0", n)
		}
		third, _ := r.join("i", 1)
		if !second.displaced {
			r.Error("the older stream of the instance was not displaced")
		}
		r.Leave(second.Member, true) // a goodbye of the displaced stream
		r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
		if n := len(third.grants()); n != 1 {
			r.Errorf("%d grants after the slot became free, want 1", n)
		}
	})
}

// W9: a goodbye requeues the leases of the session at once, and this does not count as a loss.
func TestGoodbyeRequeuesAtOnce(t *testing.T) {
	t.Attr("rules", "W9")
	run(t, func(r *rig) {
		c, _ := r.join("i", 1)
		r.submit(work())
		g := c.grants()[0]
		r.say(lease.KindStart, g)
		r.Leave(c.Member, true)
		next := r.lease(1, 0)
		if len(next) != 1 || next[0].Task.Losses != 0 {
			r.Fatalf("leased %v after the goodbye, want the task with no loss", next)
		}
	})
}

// T7: a cancel is sent at once to the session that holds the lease, with the grace and the reason.
func TestCancelReachesTheHolder(t *testing.T) {
	t.Attr("rules", "T7")
	run(t, func(r *rig) {
		c, _ := r.join("i", 1)
		task := r.submit(work())[0]
		r.say(lease.KindStart, c.grants()[0])
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: task.ID, Reason: "enough"}); err != nil {
			r.Fatal(err)
		}
		synctest.Wait()
		ends := r.Now().Serving.Add(lease.DefaultCancelGrace)
		if len(c.notices) != 1 || c.notices[0].GraceEnds != ends || c.notices[0].Detail != "enough" {
			r.Errorf("the notices to the holder are %+v, want one with the end of the grace, %v, and the reason %q",
				c.notices, ends, "enough")
		}
	})
}

// A session is told when one of its leases ends, and why, unless it ended the lease itself by a
// report.
func TestHolderIsToldWhyItsLeaseEnded(t *testing.T) {
	for reason, end := range map[lease.Reason]func(*rig, Granted){
		lease.LeaseExpired:    func(*rig, Granted) { time.Sleep(lease.DefaultHeartbeatTimeout) },
		lease.DispatchUnacked: func(*rig, Granted) { time.Sleep(lease.DefaultAckWithin) },
		lease.CancelTimeout: func(r *rig, g Granted) {
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: g.Task.ID}); err != nil {
				r.Error(err)
			}
			time.Sleep(lease.DefaultCancelGrace)
		},
		lease.DeadlineExceeded: func(_ *rig, g Granted) { time.Sleep(g.Task.Spec.AttemptTimeout) },
		lease.Revoked: func(r *rig, g Granted) {
			if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: g.Task.ID, Force: true}); err != nil {
				r.Error(err)
			}
		},
		lease.None: func(r *rig, g Granted) { r.say(lease.KindComplete, g) },
	} {
		run(t, func(r *rig) {
			spec := work()
			if reason == lease.DeadlineExceeded {
				spec.AttemptTimeout = time.Minute
			}
			c, session := r.join("i", 1)
			r.submit(spec)
			g := c.grants()[0]
			if reason != lease.DispatchUnacked {
				r.want(r.sayBy(session, lease.KindStart, g), lease.VerdictCommitted, lease.None)
			}
			end(r, g)
			synctest.Wait()
			told := Notice{}
			if n := len(c.notices); n > 0 {
				told = c.notices[n-1]
			}
			silent := reason == lease.LeaseExpired || reason == lease.DispatchUnacked
			want := Notice{Task: g.Task.ID, LeaseID: g.LeaseID, Reason: reason, Detail: told.Detail, Silent: silent}
			if reason == lease.None {
				want = Notice{}
			}
			if told != want {
				r.Errorf("the holder was last told %+v, want %+v", told, want)
			}
		})
	}
}

// T7: a first Start after a cancel ends the lease. The event LeaseEnded then has the cause
// TASK_CANCELLED, not REPORTED.
func TestStartAfterCancelEndsTheLeaseAsTaskCancelled(t *testing.T) {
	t.Attr("rules", "T7")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		var causes []lease.Reason
		r.start(Config{Events: Events{LeaseEnded: func(_ *lease.Task, cause lease.Reason) { causes = append(causes, cause) }}})
		r.submit(many(2)...)
		granted := r.lease(2, 0)
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: granted[0].Task.ID}); err != nil {
			t.Fatal(err)
		}
		r.want(r.say(lease.KindStart, granted[0]), lease.VerdictCancelled, lease.TaskCancelled)
		r.want(r.say(lease.KindComplete, granted[1]), lease.VerdictCommitted, lease.None)
		r.shutDown()
		if want := []lease.Reason{lease.TaskCancelled, lease.Reported}; !slices.Equal(causes, want) {
			t.Errorf("the causes of the ended leases are %v, want %v", causes, want)
		}
	})
}

// S2: a Lease that is repeated with the same request_id gets the same live leases, also after a
// crash.
func TestRepeatedLeaseRequest(t *testing.T) {
	t.Attr("rules", "S2")
	run(t, func(r *rig) {
		r.submit(many(4)...)
		req := LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 2, Request: "r1"}
		a, err := r.Lease(r.Context(), req)
		if err != nil || len(a) != 2 {
			r.Fatalf("the first call is granted %d tasks (%v), want 2", len(a), err)
		}
		r.kill()
		b, err := r.Lease(r.Context(), req)
		if err != nil || len(b) != 2 {
			r.Fatalf("the repeat is granted %d tasks (%v), want 2", len(b), err)
		}
		for i := range a {
			if a[i].LeaseID != b[i].LeaseID && a[i].LeaseID != b[1-i].LeaseID {
				r.Errorf("the repeat does not have lease %d of the first call", i)
			}
		}
	})
}

// S2, A3: a repeat gets no lease that has ended, even if it comes before the timer of that lease
// was handled.
func TestRepeatedRequestGetsNoExpiredLease(t *testing.T) {
	t.Attr("rules", "S2 A3")
	run(t, func(r *rig) {
		r.submit(many(2)...)
		req := LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 2, Request: "r1"}
		if first := r.leaseAside(req)(); len(first) != 2 {
			r.Fatalf("granted %d tasks, want 2", len(first))
		}
		time.Sleep(lease.DefaultHeartbeatTimeout - standstill/4)
		together, expired := make(chan struct{}), make(chan struct{})
		r.enqueue("umbra", func() { <-together })
		synctest.Wait()
		r.enqueue("umbra", func() { <-expired })
		repeat := r.leaseAside(req)
		synctest.Wait()
		close(together)            // the loop takes the last two operations in one round
		time.Sleep(standstill / 2) // not so long that the loop gives the time back
		close(expired)
		again := repeat()
		if len(again) != 2 {
			r.Errorf("the repeat was granted %d tasks, want both, which are READY again", len(again))
		}
		for _, g := range again {
			r.want(r.say(lease.KindStart, g), lease.VerdictCommitted, lease.None)
		}
	})
}

// S2, X2: the same request_id of a worker of the same name means another request in another
// workspace or tenant: it gets none of the leases of the first one, and does not end its wait.
func TestRequestOfAnotherSpaceIsAnotherRequest(t *testing.T) {
	t.Attr("rules", "S2 X2")
	for _, other := range []Space{{home.Tenant, "other"}, {"umbra", home.Workspace}} {
		run(t, func(r *rig) {
			ask := func(space Space, wait time.Duration) []Granted {
				got, err := r.Lease(r.Context(),
					LeaseRequest{
						Wants: Wants{Space: space, Worker: "w", Queues: []string{"q"}}, Max: 1, Wait: wait,
						Request: "r1",
					})
				if err != nil {
					r.Error(err)
				}
				return got
			}
			waiting := make(chan []Granted, 1)
			go func() { waiting <- ask(home, time.Minute) }()
			synctest.Wait()
			if got := ask(other, 0); len(got) > 0 {
				r.Errorf("before there is a task, %v got %v, want nothing", other, got)
			}
			r.submit(work())
			if got := <-waiting; len(got) != 1 {
				r.Errorf("the request of %v got %v, want the task", home, got)
			}
			if got := ask(other, 0); len(got) > 0 {
				r.Errorf("%v got task %v of %v, want nothing", other, got[0].Task.ID, home)
			}
		})
	}
}

// S2: if a Lease is repeated while earlier calls still wait, the last repeat is granted the task
// and the others get nothing, since their caller may be gone. A repeat after the grant gets the
// same lease. None of them waits any longer.
func TestLeaseRequestRepeatedWhileItWaits(t *testing.T) {
	t.Attr("rules", "S2")
	run(t, func(r *rig) {
		req := LeaseRequest{
			Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1, Request: "r1", Wait: time.Minute,
		}
		call := func() <-chan []Granted {
			got := make(chan []Granted, 1)
			go func() {
				g, err := r.Lease(r.Context(), req)
				if err != nil {
					r.Error(err)
				}
				got <- g
			}()
			synctest.Wait()
			return got
		}
		began := time.Now()
		first, second, third := call(), call(), call()
		r.submit(many(2)...)
		for _, before := range []<-chan []Granted{first, second} {
			if g := <-before; len(g) != 0 {
				r.Errorf("an earlier call is granted %d tasks, want none", len(g))
			}
		}
		granted := <-third
		if len(granted) != 1 {
			r.Fatalf("the last repeat is granted %d tasks, want 1", len(granted))
		}
		if again := <-call(); len(again) != 1 || again[0].LeaseID != granted[0].LeaseID {
			r.Errorf("a later repeat is granted %+v, want the same lease", again)
		}
		if waited := time.Since(began); waited > 0 {
			r.Errorf("the calls waited for %v, want all answered at once", waited)
		}
		if n := onLoop(r, func() int { return len(r.workers.byKey[workerKey{home.Tenant, "w"}].takers) }); n != 0 {
			r.Errorf("%d calls are in memory that have been answered, want 0", n)
		}
	})
}

// W5: a task that is granted to a call whose caller has gone before the delivery is requeued at
// once.
func TestTaskOfACallerThatIsGoneIsRequeued(t *testing.T) {
	t.Attr("rules", "W5")
	run(t, func(r *rig) {
		r.submit(work()) // after a start, the loop waits for the first commit
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		release := r.holdCommit()
		ctx, cancel := context.WithCancel(r.Context())
		go submitOne(r)
		synctest.Wait()
		gone := make(chan error)
		go func() {
			_, err := r.Lease(ctx, LeaseRequest{
				Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1,
				Wait: time.Minute,
			})
			gone <- err
		}()
		synctest.Wait()
		if r.liveByEvents != 1 {
			r.Errorf("%d leases are live while the commit lasts, want that of the call", r.liveByEvents)
		}
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			r.Fatal(err)
		}
		release()
		synctest.Wait()
		if g := r.lease(1, 0); len(g) != 1 {
			r.Errorf("leased %d tasks, want the one that was requeued", len(g))
		}
	})
}

// S2, W5: if a call is repeated after its grant and before the delivery, the repeat gets the task.
// It keeps the task when the engine finds that the first caller is gone.
func TestCallerGoneAfterItsRequestWasRepeated(t *testing.T) {
	t.Attr("rules", "S2 W5")
	run(t, func(r *rig) {
		r.submit(work()) // after a start, the loop waits for the first commit
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		release := r.holdCommit()
		go submitOne(r)
		synctest.Wait()
		type answer struct {
			granted []Granted
			err     error
		}
		call := func(ctx context.Context) <-chan answer {
			got := make(chan answer, 1)
			go func() {
				g, err := r.Lease(ctx, LeaseRequest{
					Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}},
					Max:   1, Request: "r1",
				})
				got <- answer{g, err}
			}()
			synctest.Wait()
			return got
		}
		ctx, cancel := context.WithCancel(r.Context())
		first := call(ctx)
		if r.liveByEvents != 1 {
			r.Errorf("%d leases are live while the commit lasts, want that of the first call", r.liveByEvents)
		}
		repeat := call(r.Context())
		cancel()
		if a := <-first; !errors.Is(a.err, context.Canceled) {
			r.Fatalf("the first call gets %+v, want context.Canceled", a)
		}
		synctest.Wait()
		release()
		a := <-repeat
		if a.err != nil || len(a.granted) != 1 {
			r.Fatalf("the repeat gets %+v, want the task", a)
		}
		synctest.Wait()
		r.want(r.say(lease.KindComplete, a.granted[0]), lease.VerdictCommitted, lease.None)
		if n := onLoop(r, func() int { return len(r.requests.byKey) }); n != 0 {
			r.Errorf("%d requests are in memory whose leases have ended, want 0", n)
		}
	})
}

// W5: a lease that was granted to a call may end before its commit, and its task may then be
// granted to a session. When the engine finds that the caller is gone, the session keeps the task,
// and the session's slot becomes free when its lease ends.
func TestCallerGoneAfterItsTaskWasGrantedAnew(t *testing.T) {
	t.Attr("rules", "W5")
	run(t, func(r *rig) {
		spec := work()
		spec.CancelGrace = time.Millisecond
		id := r.submit(spec)[0].ID
		release := r.holdCommit()
		var calls sync.WaitGroup
		begin := func(call func() error) {
			calls.Go(func() {
				if err := call(); err != nil {
					r.Error(err)
				}
			})
			synctest.Wait()
		}
		begin(func() error {
			_, _, err := r.Submit(r.Context(), home, []*lease.Spec{{Queue: "another"}}, nil)
			return err
		})
		ctx, hangUp := context.WithCancel(r.Context())
		begin(func() error {
			_, err := r.Lease(ctx, LeaseRequest{Wants: Wants{Space: home, Worker: "caller", Queues: []string{"q"}}, Max: 1})
			if !errors.Is(err, context.Canceled) {
				r.Errorf("the call ends with %v, want context.Canceled", err)
			}
			return nil
		})
		begin(func() error {
			_, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: id})
			return err
		})
		time.Sleep(spec.CancelGrace)
		synctest.Wait()
		begin(func() error {
			_, err := r.Retry(r.Context(), lease.Retry{Tenant: home.Tenant, Task: id})
			return err
		})
		c := &testSession{}
		begin(func() error {
			r.Join(c.newMember("i", Wants{Space: home, Worker: "w", Queues: []string{"q"}}, 1))
			return nil
		})
		hangUp()
		synctest.Wait()
		release()
		calls.Wait()
		granted := c.grants()
		if len(granted) != 1 || granted[0].Task.ID != id {
			r.Fatalf("the session is granted %+v, want task %v", granted, id)
		}
		r.consistent()
		r.want(r.sayBy(c.Session, lease.KindComplete, granted[0]), lease.VerdictCommitted, lease.None)
		submitOne(r)
		if n := len(c.grants()); n != 2 {
			r.Errorf("%d grants after the slot became free, want 2", n)
		}
	})
}

// A10, design 4: a failed commit has no verdict. Every call that waits gets ErrStore, the engine
// ends, and so do later calls.
func TestFailedCommitHasNoVerdict(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		r.submit(work())
		g := r.lease(1, 0)
		r.st.(*memstore.Store).SetHook(func(context.Context, *store.Batch, func()) error { return errors.New("EIO") })
		_, err := r.Judge(r.Context(), home.Tenant,
			[]*lease.Report{{Kind: lease.KindStart, TaskID: g[0].Task.ID.String(), LeaseID: g[0].LeaseID}})
		if !errors.Is(err, ErrStore) {
			r.Errorf("the report got %v, want ErrStore", err)
		}
		if err := <-r.done; !errors.Is(err, ErrStore) {
			r.Errorf("Run returned %v, want ErrStore", err)
		}
		if _, err := r.Judge(r.Context(), home.Tenant, nil); !errors.Is(err, ErrStore) {
			r.Errorf("a call after the end of the engine got %v, want ErrStore", err)
		}
	})
}

// A6, A10: neither the answer to a submit nor the grant of its task is sent before the batch is
// durable.
func TestNothingIsToldBeforeTheCommit(t *testing.T) {
	t.Attr("rules", "A6 A10")
	run(t, func(r *rig) {
		r.submit(work()) // after a start, the loop waits for the first commit
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		c, _ := r.join("i", 1)
		block := make(chan struct{})
		r.beforeCommits(func() { <-block })
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			submitOne(r)
		}()
		synctest.Wait()
		select {
		case <-answered:
			r.Error("the submit was acknowledged before its commit")
		default:
		}
		if r.liveByEvents != 1 {
			r.Errorf("%d leases are live while the commit lasts, want the one that is about to be sent", r.liveByEvents)
		}
		if len(c.granted) != 0 {
			r.Error("the grant was sent before its commit")
		}
		close(block)
		<-answered
		if n := len(c.grants()); n != 1 {
			r.Errorf("%d grants after the commit, want 1", n)
		}
	})
}

// T9, A10: a task that ended is deleted after its retention. Its verdict is replayed for one hour
// more, also after a crash.
func TestRetentionAndLedger(t *testing.T) {
	t.Attr("rules", "T9 A10")
	run(t, func(r *rig) {
		spec := work()
		spec.Retention = time.Hour
		task := r.submit(spec)[0]
		g := r.lease(1, 0)
		r.say(lease.KindComplete, g[0])
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		if r.version(task.ID) != nil {
			r.Fatal("the task exists after its retention")
		}
		if a := r.say(lease.KindComplete, g[0]); !a.Replayed {
			r.Errorf("the repeated Complete of the deleted task is answered %+v, want a replay", a)
		}
		r.kill()
		if a := r.say(lease.KindComplete, g[0]); !a.Replayed {
			r.Errorf("after a crash, the repeated Complete of the deleted task is answered %+v, want a replay", a)
		}
		time.Sleep(lease.LedgerAfterDelete + time.Second)
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCancelled, lease.TaskGone)
		err := r.st.View(func(rd store.Reader) error {
			return rd.Scan(store.Timer, nil, nil, func(key, _ []byte) bool {
				r.Errorf("the store still has the timer %x after the ledger is gone; each start would read it again", key)
				return true
			})
		})
		if err != nil {
			r.Fatal(err)
		}
	})
}

// A8: if the coordinator stood still, it extends the leases by that time before it expires any.
// Here a heartbeat that is handled 1.6 s after the Start still renews a lease with a timeout of 1
// s.
func TestStallExtendsLeases(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		spec := work()
		spec.HeartbeatTimeout = time.Second
		r.submit(spec)
		g := r.lease(1, 0)
		r.say(lease.KindStart, g[0])
		time.Sleep(900 * time.Millisecond)
		// The loop stands still in this operation, and the heartbeat waits behind it.
		_ = r.inbox.put(home.Tenant, op{run: func() { time.Sleep(700 * time.Millisecond) }})
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
	})
}

// A8: with very many live leases their extension takes so long that it is a stall itself. The
// leases get that time back, but it must not be a reason to extend them again and again: then the
// loop would do nothing else.
func TestLongExtensionIsNoReasonForFurtherOnes(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		const took = 2 * standstill
		var extensions int
		r.restart(Config{Events: Events{Stalled: func(time.Duration, int) { // the last part of an extension
			extensions++
			time.Sleep(took)
		}}})
		spec := work()
		spec.HeartbeatInterval, spec.HeartbeatTimeout = time.Second, 2*time.Second
		r.submit(spec)
		g := r.lease(1, 0)
		r.say(lease.KindStart, g[0])
		time.Sleep(1800 * time.Millisecond)
		// it ends when the lease would expire, and the heartbeat waits behind it
		_ = r.inbox.put(home.Tenant, op{run: func() { time.Sleep(standstill) }})
		r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
		for range 10 {
			time.Sleep(time.Second)
			r.want(r.say(lease.KindHeartbeat, g[0]), lease.VerdictCommitted, lease.None)
		}
		if extensions != 2 {
			r.Errorf("the leases were extended %d times, want twice: by the stall, and by the time that this took", extensions)
		}
		r.say(lease.KindComplete, g[0])
	})
}

// The tasks of one unary response are bounded by their bytes, because the response has to fit into
// one message.
func TestUnaryResponseIsBoundedInBytes(t *testing.T) {
	run(t, func(r *rig) {
		specs := many(5)
		for _, s := range specs {
			s.Payload = make([]byte, 1<<20)
		}
		r.submit(specs...)
		if n := len(r.lease(5, 0)); n != 2 {
			r.Errorf("%d tasks of 1 MiB in one response, want 2", n)
		}
	})
}

// T1: a submit that is repeated while the first one is being committed, or waits for its commit,
// finds the task of the first one.
func TestIdempotencyKeyOfATaskThatIsNotDurable(t *testing.T) {
	t.Attr("rules", "T1")
	run(t, func(r *rig) {
		r.submit(work()) // for the first task of a new queue, the loop waits for the commit
		release := r.holdCommit()
		defer r.st.(*memstore.Store).SetHook(nil)
		const calls = 3 // the first is in the commit under way, the others come into the batch after it
		answers := make(chan lease.Submitted, calls)
		for range calls {
			go func() {
				s := work()
				s.IdempotencyKey = "k"
				err := s.Fill(lease.DefaultLimits())
				if err == nil {
					var made []lease.Submitted
					if made, _, err = r.Submit(r.Context(), home, []*lease.Spec{s}, make([]lease.Digest, 1)); err == nil {
						answers <- made[0]
					}
				}
				if err != nil {
					r.Error(err)
				}
			}()
			synctest.Wait()
		}
		if len(answers) != 0 {
			r.Fatalf("%d submits have an answer before their commit", len(answers))
		}
		release()
		synctest.Wait()
		tasks, created := map[lease.TaskID]bool{}, 0
		for range calls {
			a := <-answers
			if tasks[a.Task.ID] = true; a.Created {
				created++
			}
		}
		if len(tasks) != 1 || created != 1 {
			r.Errorf("the answers name %d tasks, and %d of them say that they made one, want 1 and 1", len(tasks), created)
		}
	})
}

// T1: an idempotency key is free again once the retention of its task has passed.
func TestIdempotencyKeyIsFreeAfterRetention(t *testing.T) {
	t.Attr("rules", "T1")
	run(t, func(r *rig) {
		spec := func() *lease.Spec {
			s := work()
			s.IdempotencyKey, s.Retention = "k", time.Hour
			return s
		}
		first := r.submit(spec())[0]
		if again := r.submit(spec())[0]; again.ID != first.ID {
			r.Fatalf("the second submit with the key made task %v, want the first one, %v", again.ID, first.ID)
		}
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		late := spec()
		if err := late.Fill(lease.DefaultLimits()); err != nil {
			r.Fatal(err)
		}
		again := onLoop(r, func() lease.Step { // all on the loop, so that no timer deletes the task first
			time.Sleep(time.Hour)
			r.readClocks()
			return r.Engine.submit(home, []*lease.Spec{late}, make([]lease.Digest, 1))
		})
		if !again.Submitted[0].Created {
			r.Error("a submit with the key after the retention did not make a new task")
		}
	})
}

// T13: a queue counts its tasks by state, also after a crash. A worker that waits for tasks of an
// unknown queue does not make the queue.
func TestQueueCounts(t *testing.T) {
	run(t, func(r *rig) {
		if g := r.lease(1, 0); len(g) != 0 {
			r.Fatalf("leased %d tasks of an empty store, want 0", len(g))
		}
		if q, err := r.Queues(r.Context(), home, "", 10, 0); err != nil || len(q) != 0 {
			r.Fatalf("the queues are %v (%v), want none", q, err)
		}
		if len(r.spaces.byName) != 0 {
			r.Errorf("%d workspaces are in memory for a worker that has left, want 0", len(r.spaces.byName))
		}
		later := work()
		later.RunAt = lease.WallOf(time.Now().Add(time.Hour))
		r.submit(work(), work(), later)
		r.lease(1, 0)
		for range 2 {
			q, err := r.Queues(r.Context(), home, "", 10, 0)
			if err != nil || len(q) != 1 {
				r.Fatalf("the queues are %v (%v), want one", q, err)
			}
			if got := fmt.Sprint(q[0].Ready, q[0].Scheduled, q[0].Leased); got != "1 1 1" {
				r.Errorf("ready, scheduled and leased are %s, want 1 each", got)
			}
			r.kill()
		}
	})
}

// A delayed task is granted at its run_at, and not at the next wake-up of an idle loop.
func TestDelayedTaskIsGrantedWithin100ms(t *testing.T) {
	run(t, func(r *rig) {
		spec := work()
		spec.RunAt = lease.WallOf(time.Now().Add(1300 * time.Millisecond))
		began := time.Now()
		r.submit(spec)
		if g := r.lease(1, time.Minute); len(g) != 1 {
			r.Fatalf("leased %v, want the delayed task", g)
		}
		if late := time.Since(began) - 1300*time.Millisecond; late < 0 || late > 100*time.Millisecond {
			r.Errorf("the task was granted %v after its run_at, want 0 to 100 ms", late)
		}
	})
}
