package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// sayBy sends a report on the stream of a session.
func (r *rig) sayBy(session string, kind lease.Kind, g Granted) lease.Answer {
	r.Helper()
	rep := &lease.Report{Kind: kind, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID, Session: session}
	a, err := r.Judge(r.Context(), home.Tenant, []*lease.Report{rep})
	if err != nil {
		r.Fatal(err)
	}
	return a[0]
}

// W8: reports on a displaced stream still count, but the leases and their slots stay with the
// stream that took them over.
func TestDisplacedStreamTakesNoLeaseBack(t *testing.T) {
	t.Attr("rules", "W8")
	run(t, func(r *rig) {
		first, old := r.join("i", 1)
		r.submit(many(2)...)
		g := first.grants()[0]
		second, id := r.join("i", 1)
		r.want(r.sayBy(id, lease.KindHeartbeat, g), lease.VerdictCommitted, lease.None)
		r.want(r.sayBy(old, lease.KindHeartbeat, g), lease.VerdictCommitted, lease.None)
		if n := len(second.newGrants()); n != 0 {
			r.Errorf("%d grants although a lease fills the one slot, want 0", n)
		}
		held, err := r.LeasesBySession(r.Context(), home.Tenant)
		if err != nil || held[id] != 1 {
			r.Errorf("the sessions hold %v (%v), want 1 for %s", held, err, id)
		}
	})
}

// W8: a stream that resumes an older session of its instance gets the leases that a newer one was
// granted and never acknowledged: no frame of the older session has them. What the older session
// was granted itself is in its frames, which are sent again.
func TestResumedSessionGetsTheLeasesOfANewerOne(t *testing.T) {
	t.Attr("rules", "W8")
	run(t, func(r *rig) {
		older, _ := r.join("i", 1)
		r.submit(many(2)...)
		if n := len(older.grants()); n != 1 {
			r.Fatalf("%d grants to the older session, want 1", n)
		}
		newer, _ := r.join("i", 2)
		if n := len(newer.grants()); n != 2 {
			r.Fatalf("the newer session was handed %d leases, want that of the older one and another", n)
		}
		r.Join(older.Member)
		synctest.Wait()
		got := older.grants()
		if len(got) != 2 || got[1].LeaseID != newer.grants()[1].LeaseID || !got[1].Again {
			r.Errorf("the older session was handed %d leases in the end, want its own and that of the newer session", len(got))
		}
	})
}

// T7, W8: a cancel that was asked while the holder had no stream, or before a restart of the
// coordinator, reaches its next stream at once, with the rest of the grace: the next heartbeat may
// be due only when the grace is over.
func TestCancelReachesTheNextStream(t *testing.T) {
	t.Attr("rules", "T7 W8")
	for _, restart := range []bool{false, true} {
		run(t, func(r *rig) {
			c, _ := r.join("i", 1)
			id := r.submit(work())[0].ID
			r.startAll(c)
			r.Leave(c.Member, false)
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: id, Reason: "enough"}); err != nil {
				r.Fatal(err)
			}
			const away = 10 * time.Second
			time.Sleep(away)
			if restart {
				r.kill()
			}
			c, _ = r.join("i", 1)
			if len(c.notices) != 1 || c.notices[0].Task != id || c.notices[0].Reason != lease.TaskCancelled || c.notices[0].Detail != "enough" {
				r.Fatalf("the notices to the next stream are %+v, want one with TASK_CANCELLED and the reason %q",
					c.notices, "enough")
			}
			if got, most := c.notices[0].GraceEnds.Sub(r.Now().Serving), lease.DefaultCancelGrace-away; got <= most-time.Second || got > most+time.Second {
				r.Errorf("the grace is %v, want what is left of it, about %v", got, most)
			}
		})
	}
}

// W10: an operator can revoke the leases that wait for a session which has not registered yet. If a
// session of the instance has them, they are not touched.
func TestRevokeBeforeTheSessionJoins(t *testing.T) {
	t.Attr("rules", "W10")
	run(t, func(r *rig) {
		c, _ := r.join("i", 1)
		id := r.submit(work())[0].ID
		r.startAll(c)
		revoke := func(want lease.State) {
			r.Helper()
			if m, _, err := r.Revoke(r.Context(), home.Tenant, []string{lease.InstanceOf(c.Session)}, true, "by hand"); m != nil || err != nil {
				r.Fatalf("the member %v was removed (%v), want none", m, err)
			}
			if v := r.version(id); v.State() != want || v.Losses != 0 {
				r.Errorf("the task is %v with %d losses, want %v and none", v.State(), v.Losses, want)
			}
		}
		revoke(lease.Running)
		r.Leave(c.Member, false)
		revoke(lease.Ready)
	})
}

// W10: when an operator revokes the leases of an instance, it is all the same which of its sessions
// has them by then. That session gets no more work.
func TestRevokeTakesTheLeasesOfTheNewestSession(t *testing.T) {
	t.Attr("rules", "W10")
	run(t, func(r *rig) {
		first, _ := r.join("i", 1)
		id := r.submit(work())[0].ID
		r.startAll(first)
		second, _ := r.join("i", 1)
		m, _, err := r.Revoke(r.Context(), home.Tenant, []string{lease.InstanceOf(first.Session)}, false, "by hand")
		if !slices.Equal(m, []*Member{second.Member}) || err != nil {
			r.Fatalf("the members %v were removed (%v), want that of the second session", m, err)
		}
		if v := r.version(id); v.State() != lease.Ready || v.Losses != 0 {
			r.Errorf("the task is %v with %d losses, want READY and none", v.State(), v.Losses)
		}
		if a, b := len(first.grants()), len(second.grants()); a != 1 || b != 0 {
			r.Errorf("%d grants to the first session and %d to the second, want 1 and none", a, b)
		}
	})
}

// W10: a revoke of many instances ends the leases of all, in the order of the instances, and of no
// other. It has one audit entry, that of its call (X4).
func TestRevokeOfManyInstances(t *testing.T) {
	t.Attr("rules", "W10")
	bound(t, 3, &revokedAtOnce)
	run(t, func(r *rig) {
		var instances []string
		var want []*Member
		all := map[lease.TaskID]bool{} // whether its lease is to end
		for i := range 12 {
			c, session := r.join(fmt.Sprint(i), 1)
			all[r.submit(work())[0].ID] = i < 10
			r.startAll(c)
			if i%4 == 3 {
				r.Leave(c.Member, false) // its lease waits for the next session
			} else if i < 10 {
				want = append(want, c.Member)
			}
			if i < 10 {
				instances = append(instances, lease.InstanceOf(session), "unknown")
			}
		}
		entry := &Entry{Audit: records.Audit{Tenant: home.Tenant, Action: "KickWorker"}}
		removed, leases, err := r.Revoke(Audited(r.Context(), entry), home.Tenant, instances, false, "by hand")
		if err != nil || !slices.Equal(removed, want) || leases != 10 {
			r.Errorf("%d leases have ended and %d members were removed (%v), want 10 and the %d of the sessions, in their order", leases, len(removed), err, len(want))
		}
		for id, ended := range all {
			if state := r.version(id).State(); (state == lease.Ready) != ended {
				r.Errorf("task %v is %v; its lease was to end: %v", id, state, ended)
			}
		}
		entries := 0
		err = r.st.View(func(rd store.Reader) error {
			return records.Audits(rd, store.AuditKey{Tenant: home.Tenant}, func(*records.Audit) bool { entries++; return true })
		})
		if err != nil || entries != 1 || !entry.Kept() {
			r.Errorf("%d audit entries (%v), want that of the call", entries, err)
		}
	})
}

// W10: many leases are revoked in parts, with one audit entry (X4). Those that have ended already
// are left out, and if asked those that a session holds; a session that loses one is told, and
// stays.
func TestRevokeLeases(t *testing.T) {
	t.Attr("rules", "W10")
	bound(t, 3, &revokedAtOnce)
	run(t, func(r *rig) {
		c, _ := r.join("i", 8)
		tasks := r.submit(many(10)...) // the last two are granted to a call
		r.startAll(c)
		r.lease(2, 0)
		gone := len(tasks)
		var all []LeaseRef
		for _, task := range tasks {
			all = append(all, LeaseRef{task.ID, 1}, LeaseRef{task.ID, 7})
		}
		entry := &Entry{Audit: records.Audit{Tenant: home.Tenant, Action: "KickWorker"}}
		for _, tt := range []struct {
			waiting       bool
			want, notices int
		}{{true, 2, 0}, {true, 0, 0}, {false, gone - 2, 8}, {false, 0, 8}} {
			n, err := r.RevokeLeases(Audited(r.Context(), entry), home.Tenant, all, tt.waiting, "by hand")
			if err != nil || n != tt.want || len(c.notices) != tt.notices {
				r.Errorf("waiting %v: %d leases were revoked (%v) and the session got %d notices, want %d and %d",
					tt.waiting, n, err, len(c.notices), tt.want, tt.notices)
			}
		}
		entries := 0
		err := r.st.View(func(rd store.Reader) error {
			return records.Audits(rd, store.AuditKey{Tenant: home.Tenant}, func(*records.Audit) bool { entries++; return true })
		})
		if err != nil || entries != 1 {
			r.Errorf("%d audit entries (%v), want that of the call", entries, err)
		}
	})
}

// W10: a caller who does not wait for the answer of Revoke changes nothing about it: the session
// that is removed must be ended.
func TestRevokeIsNotAbandoned(t *testing.T) {
	t.Attr("rules", "W10")
	run(t, func(r *rig) {
		c, _ := r.join("i", 1)
		id := r.submit(work())[0].ID
		r.startAll(c)
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		m, _, err := r.Revoke(ctx, home.Tenant, []string{lease.InstanceOf(c.Session)}, false, "by hand")
		if !slices.Equal(m, []*Member{c.Member}) || err != nil {
			r.Errorf("the members %v were removed (%v), want that of the session", m, err)
		}
		if v := r.version(id); v.State() != lease.Ready {
			r.Errorf("the task is %v, want READY", v.State())
		}
	})
}

// W8: a lease moves to the session that renews it, and frees its slot in the session before.
func TestLeaseMovesToTheSessionThatRenewsIt(t *testing.T) {
	t.Attr("rules", "W8")
	run(t, func(r *rig) {
		first, _ := r.join("i", 1)
		r.submit(many(2)...)
		g := first.grants()[0]
		second, other := r.join("j", 1)
		if n := len(second.grants()); n != 1 {
			r.Fatalf("%d grants to the second session, want 1", n)
		}
		r.submit(work())
		r.want(r.sayBy(other, lease.KindHeartbeat, g), lease.VerdictCommitted, lease.None)
		if a, b := len(first.grants()), len(second.grants()); a != 2 || b != 1 {
			r.Errorf("%d grants to the first session and %d to the second, want 2 (its slot became free) and 1", a, b)
		}
	})
}

// X2: the leases of a session are shown to its tenant only. A session that is not known, because it
// has not joined yet or has left, has none.
func TestLeasesOfASession(t *testing.T) {
	t.Attr("rules", "X2")
	run(t, func(r *rig) {
		w, id := r.join("i", 1)
		r.submit(work())
		task := w.grants()[0].Task.ID
		held := func(tenant, session string, want ...lease.TaskID) {
			r.Helper()
			if got, err := r.LeasesOf(r.Context(), tenant, session); err != nil || !slices.Equal(got, want) {
				r.Errorf("the session holds %v (%v), want %v", got, err, want)
			}
		}
		held(home.Tenant, id, task)
		held("umbra", id)
		r.Leave(w.Member, false)
		held(home.Tenant, id)
	})
}

// overload stops the loop and fills the inbox until the engine refuses calls. After wait the loop
// continues.
func (r *rig) overload(wait time.Duration) {
	r.Helper()
	block := make(chan struct{})
	err := r.inbox.put(home.Tenant, op{run: func() { <-block }})
	synctest.Wait()
	for err == nil {
		err = r.inbox.put(home.Tenant, op{run: func() {}})
	}
	if !errors.Is(err, ErrOverloaded) {
		r.Fatal(err)
	}
	time.AfterFunc(wait, func() { close(block) })
}

// An overloaded engine refuses calls, but never a leave, a smaller number of slots, or the end of a
// waiting call: nobody would repeat these.
func TestOverloadRefusesNoLeave(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(work())
		r.lease(1, 0)
		shrinks, _ := r.join("i", 1)
		leaves, _ := r.join("j", 1)
		asked := make(chan error, 2)
		lease := func(ctx context.Context, wait time.Duration) {
			_, err := r.Lease(ctx, LeaseRequest{
				Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1,
				Wait: wait,
			})
			asked <- err
		}
		ctx, cancel := context.WithCancel(r.Context())
		go lease(ctx, time.Hour)
		go lease(r.Context(), time.Second)
		synctest.Wait()
		r.overload(time.Minute)
		lease(r.Context(), time.Hour)
		if err := <-asked; !errors.Is(err, ErrOverloaded) {
			r.Errorf("a call for work got %v, want ErrOverloaded", err)
		}
		cancel()
		if err := <-asked; !errors.Is(err, context.Canceled) {
			r.Errorf("the caller that gave up got %v, want context.Canceled", err)
		}
		r.Leave(leaves.Member, false)
		r.Resize(shrinks.Member, 0)
		if err := <-asked; err != nil {
			r.Errorf("the caller whose wait time has passed got %v, want no error", err)
		}
		if n := r.waitingTakers("q"); n > 1 {
			r.Errorf("%d takers wait in line, want at most the one session", n)
		}
		r.submit(work())
		if n := len(shrinks.grants()) + len(leaves.grants()); n != 0 {
			r.Errorf("%d grants to sessions without a slot, want 0", n)
		}
	})
}

// A8: a flood of other calls of the tenant crowds out no call that ends or renews a lease, and no
// change by an operator. These have a bound of their own.
func TestOverloadRefusesNoReport(t *testing.T) {
	defer func(n int) { maxWaiting = n }(maxWaiting)
	maxWaiting = 20
	run(t, func(r *rig) {
		r.submit(work(), work(), work())
		g := r.lease(3, 0)
		r.overload(time.Minute)
		report := func(k lease.Kind, g Granted) []*lease.Report {
			return []*lease.Report{{Kind: k, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID}}
		}
		calls := map[string]func() error{
			"a report": func() error {
				_, err := r.Judge(r.Context(), home.Tenant, report(lease.KindComplete, g[0]))
				return err
			},
			"a heartbeat": func() error {
				_, err := r.Judge(r.Context(), home.Tenant, report(lease.KindHeartbeat, g[1]))
				return err
			},
			"a report on a stream": func() error {
				done := make(chan error, 1)
				if err := r.Post(home.Tenant, report(lease.KindComplete, g[1]), func(_ []lease.Answer, err error) { done <- err }); err != nil {
					return err
				}
				return <-done
			},
			"a cancel": func() error {
				_, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: g[2].Task.ID})
				return err
			},
			"a bulk command": func() error {
				_, err := r.Sweep(r.Context(),
					Sweep{Space: home, Choose: func(*lease.Task) (lease.Command, bool) { return nil, true }})
				return err
			},
			"a later step of a bulk command": func() error {
				_, err := r.Sweep(r.Context(),
					Sweep{
						Space: home, Until: g[2].Task.ID.Seq,
						Choose: func(*lease.Task) (lease.Command, bool) { return nil, true },
					})
				return err
			},
			"a reconnect": func() error {
				_, err := r.KnowsInstance(r.Context(), home.Tenant, "i")
				return err
			},
			"a revocation": func() error { return r.Keep(r.Context(), home.Tenant, func(*store.Batch) {}) },
		}
		errs := make(chan error, len(calls))
		for name, call := range calls {
			go func() {
				err := call()
				if err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
				errs <- err
			}()
		}
		synctest.Wait()
		var err error
		for n := 0; err == nil; n++ {
			if n > maxWaiting {
				r.Fatal("reports have no bound")
			}
			err = r.Post(home.Tenant, nil, func([]lease.Answer, error) {})
		}
		if !errors.Is(err, ErrOverloaded) {
			r.Errorf("too many reports got %v, want ErrOverloaded", err)
		}
		for range calls {
			if err := <-errs; err != nil {
				r.Error(err)
			}
		}
	})
}

// unreadableStore is a store whose reads fail when on is set.
type unreadableStore struct {
	*memstore.Store
	on atomic.Bool
}

func (s *unreadableStore) View(fn func(store.Reader) error) error {
	if s.on.Load() {
		return errors.New("checksum mismatch")
	}
	return s.Store.View(fn)
}

// A10, design 4: if the store cannot be read, the engine stops, and every call that waits gets
// ErrStore.
func TestUnreadableStoreFailsAllWaitingCalls(t *testing.T) {
	t.Attr("rules", "A10")
	synctest.Test(t, func(t *testing.T) {
		st := &unreadableStore{Store: memstore.New()}
		r := &rig{T: t, st: st}
		r.start(Config{})
		r.submit(work())
		g := r.lease(1, 0)
		r.say(lease.KindComplete, g[0]) // from now on the task is only in the store
		synctest.Wait()
		st.on.Store(true)
		answers := make(chan error, 3)
		// so that the loop takes the three reports together
		_ = r.inbox.put(home.Tenant, op{run: func() { time.Sleep(time.Millisecond) }})
		synctest.Wait()
		for range cap(answers) {
			go func() {
				_, err := r.Judge(t.Context(), home.Tenant,
					[]*lease.Report{{Kind: lease.KindComplete, TaskID: g[0].Task.ID.String(), LeaseID: g[0].LeaseID}})
				answers <- err
			}()
		}
		for range cap(answers) {
			if err := <-answers; !errors.Is(err, ErrStore) {
				t.Errorf("a report got %v, want ErrStore", err)
			}
		}
		if err := <-r.done; !errors.Is(err, ErrStore) {
			t.Errorf("Run returned %v, want ErrStore", err)
		}
	})
}

// If the batch is full, the loop waits for the commit before it, and does not spin while timers are
// due. If the loop spins, this test hangs: time does not pass in a bubble while a goroutine is
// busy.
func TestFullBatchDoesNotSpin(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(work())
		r.lease(1, 0)
		block := make(chan struct{})
		r.beforeCommits(func() { <-block })
		go submitOne(r)
		synctest.Wait()
		for range 3*maxBatchOps + 1 { // enough for the commit under way, and to fill the batch after it
			if err := r.inbox.put(home.Tenant, op{run: func() {}}); err != nil {
				r.Fatal(err)
			}
		}
		time.Sleep(2 * lease.DefaultHeartbeatTimeout)
		close(block)
	})
}

// A8: a slow commit extends the leases by the time that it took: the worker has the full time to
// acknowledge a grant that waited for the commit, and a live lease expires later. A lease that
// nobody renews still expires.
func TestSlowCommitExtendsLeases(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		const slow = 7 * time.Second
		spec := work()
		spec.HeartbeatTimeout = 10 * time.Second
		r.submit(spec)
		early := r.lease(1, 0)[0]
		r.want(r.say(lease.KindStart, early), lease.VerdictCommitted, lease.None)
		c, _ := r.join("i", 1)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		gate := make(chan struct{})
		r.beforeCommits(func() { <-gate })
		go submitOne(r) // its task is granted in the same batch
		time.Sleep(slow)
		close(gate)
		late := c.grants()
		if len(late) != 1 {
			r.Fatalf("%d grants after the commit, want the one that waited for it", len(late))
		}
		time.Sleep(lease.DefaultAckWithin - time.Second)
		r.want(r.say(lease.KindAck, late[0]), lease.VerdictCommitted, lease.None)
		r.want(r.say(lease.KindHeartbeat, early), lease.VerdictCommitted, lease.None)
		time.Sleep(spec.HeartbeatTimeout)
		r.want(r.say(lease.KindHeartbeat, early), lease.VerdictCancelled, lease.LeaseExpired)
	})
}

// A8: a slow commit extends the leases also while it lasts: a worker whose Start waits for the
// commit can complete its task meanwhile, although its heartbeat timeout has passed on the clock.
func TestSlowCommitExtendsLeasesWhileItLasts(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		spec := work()
		spec.HeartbeatTimeout = 2 * time.Second
		r.submit(spec)
		g := r.lease(1, 0)[0]
		gate := make(chan struct{})
		r.beforeCommits(func() { <-gate })
		answers := make(chan lease.Answer, 2)
		go func() { answers <- r.say(lease.KindStart, g) }()
		time.Sleep(spec.HeartbeatTimeout + time.Second)
		go func() { answers <- r.say(lease.KindComplete, g) }()
		synctest.Wait()
		close(gate)
		for range 2 {
			r.want(<-answers, lease.VerdictCommitted, lease.None)
		}
	})
}

// A8: attempt_timeout counts while the coordinator serves: an attempt whose grant and report wait
// for slow commits has the time that its producer gave it.
func TestSlowCommitExtendsAttempts(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		const slow = 7 * time.Second
		spec := work()
		spec.AttemptTimeout, spec.Retry.MaxAttempts = 5*time.Second, 1
		r.submit(spec)
		r.beforeCommits(func() { time.Sleep(slow) })
		g := r.lease(1, 0)[0]
		time.Sleep(spec.AttemptTimeout - time.Second)
		r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
	})
}

// A8: if a grant waits for two slow commits in a row, its lease is extended by the time of both:
// its acknowledgement still counts.
func TestSlowCommitsInARowExtendLeases(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		const slow = 7 * time.Second
		r.submit(work())
		r.submit(work())
		r.lease(2, 0)
		r.beforeCommits(func() { time.Sleep(slow) })
		c, _ := r.join("i", 2)
		go submitOne(r)
		time.Sleep(time.Second)
		go submitOne(r)
		time.Sleep(2*slow - time.Second/2)
		synctest.Wait()
		r.st.(*memstore.Store).SetHook(nil)
		granted := c.grants()
		if len(granted) != 2 {
			r.Fatalf("%d grants, want the 2 that waited for the commits", len(granted))
		}
		time.Sleep(lease.DefaultAckWithin - time.Second)
		for _, g := range granted[1:] {
			r.want(r.say(lease.KindAck, g), lease.VerdictCommitted, lease.None)
		}
	})
}

// A8: commits follow each other without a pause. Due timers must still be handled after each of
// them. The commits extend the leases only if each takes SlowCommit or longer.
func TestCommitsThatFollowEachOther(t *testing.T) {
	t.Attr("rules", "A8")
	for _, each := range []time.Duration{SlowCommit * 6 / 10, SlowCommit * 3 / 2, SlowCommit * 6} {
		run(t, func(r *rig) {
			spec := work()
			spec.HeartbeatTimeout = time.Hour
			r.submit(spec)
			g := r.lease(1, 0)[0]
			r.want(r.say(lease.KindStart, g), lease.VerdictCommitted, lease.None)
			r.beforeCommits(func() { time.Sleep(each) })
			delayed := work()
			delayed.RunAt = lease.WallOf(time.Now().Add(2 * each))
			id := r.submit(delayed)[0].ID
			began, longest := time.Now(), time.Duration(0)
			for time.Since(began) < 20*each {
				go submitOne(r)
				time.Sleep(each / 10)
				longest = max(longest, r.CommitPending())
			}
			lasted := time.Since(began)
			if longest > each {
				r.Errorf("commits of %v: CommitPending says that one has taken %v", each, longest)
			}
			if got := r.version(id).Rest; got != lease.Ready {
				r.Errorf("commits of %v: a task whose run_at has passed is %v, want READY", each, got)
			}
			given := time.Duration(r.version(g.Task.ID).Lease.Stalled)
			if each < SlowCommit && given != 0 || each >= SlowCommit && (given < lasted-3*each || given > lasted+3*each) {
				r.Errorf("commits of %v for %v extended the lease by %v; want 0 if a commit is shorter than %v, else about all of the time", each, lasted, given, SlowCommit)
			}
			r.st.(*memstore.Store).SetHook(nil)
		})
	}
}

// A8: if each batch is full at once, every round comes after a wait for the committer, which counts
// as a stall. Due timers must still be handled.
func TestTimersDuringAFlood(t *testing.T) {
	t.Attr("rules", "A8 T8")
	bound(t, 4, &maxBatchOps)
	run(t, func(r *rig) {
		const each = 2 * standstill
		r.submit(work())
		r.lease(1, 0)
		r.beforeCommits(func() { time.Sleep(each) })
		delayed := work()
		delayed.RunAt = lease.WallOf(time.Now().Add(2 * each))
		id := r.submit(delayed)[0].ID
		over := make(chan struct{})
		for range 8 * maxBatchOps {
			go func() {
				for {
					select {
					case <-over:
						return
					default:
						submitOne(r)
					}
				}
			}()
		}
		time.Sleep(20 * each)
		if got := r.version(id).Rest; got != lease.Ready {
			r.Errorf("a task whose run_at has passed is %v, want READY", got)
		}
		close(over)
		r.st.(*memstore.Store).SetHook(nil)
	})
}

// A8: if the loop stalls during a slow commit, the leases are extended once by that time, not
// twice.
func TestStallWithinACommitCountsOnce(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		const slow = 7 * time.Second
		r.submit(work())
		g := r.lease(1, 0)[0]
		r.want(r.say(lease.KindStart, g), lease.VerdictCommitted, lease.None)
		r.beforeCommits(func() { time.Sleep(slow) })
		go submitOne(r)
		synctest.Wait()
		r.st.(*memstore.Store).SetHook(nil)
		_ = r.inbox.put(home.Tenant, op{run: func() { time.Sleep(slow - time.Second) }})
		time.Sleep(2 * slow)
		synctest.Wait()
		stalled := r.version(g.Task.ID).Lease.Stalled
		if d := time.Duration(stalled); d < slow-time.Second || d > slow {
			r.Errorf("the lease was extended by %v, want %v to %v", d, slow-time.Second, slow)
		}
	})
}

// W8, W9: when a second stream continues a session, it states its own number of slots. After that,
// a number that the old stream states does not count.
func TestSlotsAreThoseOfTheNewestStream(t *testing.T) {
	t.Attr("rules", "W8 W9")
	run(t, func(r *rig) {
		old, session := r.join("i", 1)
		w, after := old.Member, &testSession{}
		m := after.newMember("i", w.Wants, 1)
		m.Session = session
		r.Join(m)
		r.Resize(w, 0)
		r.submit(work())
		if n := len(after.grants()); n != 1 {
			r.Fatalf("%d grants to the new stream with one slot, want 1", n)
		}
		r.Resize(m, 0)
		r.want(r.say(lease.KindComplete, after.grants()[0]), lease.VerdictCommitted, lease.None)
		r.submit(work())
		if n := len(after.grants()); n != 1 {
			r.Errorf("%d more grants to a session without slots, want 0", n-1)
		}
	})
}

// W8, W9: a dismissal takes nothing from a newer session of the instance. Otherwise it requeues the
// leases, also if the stream that had the session before has not left yet: that stream is told of
// the goodbye.
func TestDismissalSparesANewerSession(t *testing.T) {
	t.Attr("rules", "W8 W9")
	for name, tt := range map[string]struct{ left, newer bool }{
		"a newer session":             {left: true, newer: true},
		"no newer session":            {left: true},
		"the stream has not left yet": {},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				first, session := r.join("i", 1)
				r.submit(work())
				g := first.grants()[0]
				r.want(r.sayBy(session, lease.KindStart, g), lease.VerdictCommitted, lease.None)
				if tt.left {
					r.Leave(first.Member, false)
				}
				newest := first
				if tt.newer {
					newest, _ = r.join("i", 1)
				}
				r.Dismiss(home.Tenant, session)
				synctest.Wait()
				if want := !tt.left; newest.displaced != want {
					r.Errorf("the newest stream was displaced: %v, want %v", newest.displaced, want)
				} else if want && newest.why != saidGoodbye {
					r.Errorf("the stream was displaced because %q, want %q", newest.why, saidGoodbye)
				}
				if tt.newer {
					r.want(r.say(lease.KindComplete, g), lease.VerdictCommitted, lease.None)
				} else if next := r.lease(1, 0); len(next) != 1 || next[0].Task.Losses != 0 {
					r.Errorf("leased %v after the dismissal, want the task with no loss", next)
				}
			})
		})
	}
}
