package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// dueIn returns a task with a deadline, which is a timer while it waits.
func dueIn(d time.Duration) *lease.Spec {
	s := work()
	s.Deadline = lease.WallOf(time.Now().Add(d))
	return s
}

// timersIn returns how many timers the store has in Timer and in TimerLog.
func (r *rig) timersIn() (sorted, logged int) {
	r.Helper()
	err := r.st.View(func(rd store.Reader) error {
		err := records.TimerLog(rd, func(_ uint64, all []store.TimerKey) { logged += len(all) })
		if err != nil {
			return err
		}
		return rd.Scan(store.Timer, nil, nil, func(_, _ []byte) bool { sorted++; return true })
	})
	if err != nil {
		r.Fatal(err)
	}
	return sorted, logged
}

// A10: what a start finds in TimerLog of a task that was deleted is not the timer that ends its
// ledger: the verdict is replayed after that time.
func TestLoggedTimerOfADeletedTaskLeavesItsLedger(t *testing.T) {
	t.Attr("rules", "A10")
	run(t, func(r *rig) {
		task := r.submit(dueIn(10 * time.Minute))[0]
		g := r.lease(1, 0)
		r.say(lease.KindComplete, g[0])
		if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: task.ID}); err != nil {
			r.Fatal(err)
		}
		r.restart(Config{})
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if a := r.say(lease.KindComplete, g[0]); !a.Replayed {
			r.Errorf("the repeated Complete of the deleted task is answered %+v, want a replay", a)
		}
		time.Sleep(lease.LedgerAfterDelete)
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCancelled, lease.TaskGone)
		if sorted, _ := r.timersIn(); sorted != 0 {
			r.Errorf("Timer has %d timers of nothing", sorted)
		}
	})
}

// T6, T8: a sweep after a start moves the timers of those tasks that still have them: not that of a
// task which is leased by then, nor that of one which is gone, nor the first of one that has waited
// twice.
func TestSweepAfterAStart(t *testing.T) {
	t.Attr("rules", "T6 T8")
	run(t, func(r *rig) {
		twice := work()
		twice.StartTimeout = time.Hour
		r.submit(twice)
		back := r.lease(1, 0)
		time.Sleep(time.Minute)
		r.say(lease.KindRelease, back[0])
		tasks := r.submit(dueIn(time.Hour), dueIn(2*time.Hour), dueIn(3*time.Hour))
		g := r.lease(2, 0)
		r.say(lease.KindRelease, g[0])
		if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: tasks[1].ID}); err != nil {
			r.Fatal(err)
		}
		r.kill()
		r.restart(Config{TimersSwept: 6}) // as many as TimerLog has
		for range 6 {                     // with any batches
			r.say(lease.KindHeartbeat, g[1])
		}
		synctest.Wait()
		if sorted, logged := r.timersIn(); sorted != 2 || logged != 0 {
			r.Errorf("Timer has %d timers, TimerLog %d; want those of the tasks that wait in Timer", sorted, logged)
		}
		time.Sleep(3*time.Hour + time.Second)
		synctest.Wait()
		if last := r.version(tasks[2].ID); last.Rest != lease.Failed || last.Reason != lease.DeadlineExceeded {
			r.Errorf("after its deadline the task is %v, %v", last.Rest, last.Reason)
		}
	})
}

// T9: a task that ends gets the timer of its retention even if it is due when a timer was that the
// task had while it waited.
func TestRetentionEndsAtTheDeadline(t *testing.T) {
	t.Attr("rules", "T9")
	runWith(t, Config{TimersSwept: 1}, func(r *rig) {
		spec := dueIn(2 * time.Hour)
		spec.Retention = time.Hour
		task := r.submit(spec)[0]
		time.Sleep(time.Hour)
		if sorted, _ := r.timersIn(); sorted != 1 {
			r.Fatalf("Timer has %d timers, want that of the deadline", sorted)
		}
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: task.ID}); err != nil {
			r.Fatal(err)
		}
		r.kill()
		time.Sleep(time.Hour)
		synctest.Wait()
		if r.version(task.ID) != nil {
			r.Error("the task exists after its retention")
		}
	})
}

// T6: a task that is retried gets the timer of its deadline even if that is due when its retention
// would have ended.
func TestDeadlineWhenRetentionWouldEnd(t *testing.T) {
	t.Attr("rules", "T6")
	runWith(t, Config{TimersSwept: 1}, func(r *rig) {
		spec := dueIn(2 * time.Hour)
		spec.Retention = time.Hour
		task := r.submit(spec)[0]
		time.Sleep(time.Hour)
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: task.ID}); err != nil {
			r.Fatal(err)
		}
		if _, err := r.Retry(r.Context(), lease.Retry{Tenant: home.Tenant, Task: task.ID}); err != nil {
			r.Fatal(err)
		}
		r.kill()
		time.Sleep(time.Hour)
		synctest.Wait()
		if last := r.version(task.ID); last == nil || last.Rest != lease.Failed || last.Reason != lease.DeadlineExceeded {
			r.Errorf("at its deadline the task is %+v", last)
		}
	})
}

// T8: what a start finds in TimerLog of a task that has no such timer any more is dropped when it
// is due: otherwise the loop would have no rest, and come to no later timer.
func TestLoggedTimerThatItsTaskHasNoMore(t *testing.T) {
	t.Attr("rules", "T8")
	run(t, func(r *rig) {
		spec := work()
		spec.StartTimeout = time.Minute
		r.submit(spec)
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		late := r.submit(dueIn(2 * time.Minute))[0]
		r.restart(Config{})
		left := func() int { return onLoop(r, r.timers.recent.Len) }
		if n := left(); n != 2 {
			r.Fatalf("the start found %d timers, want 2", n)
		}
		time.Sleep(time.Minute)
		left() // a round that expires what is due
		if n := left(); n != 1 {
			r.Fatalf("%d timers are left after the first was due", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if last := r.version(late.ID); last.Reason != lease.DeadlineExceeded {
			r.Errorf("after its deadline the other task is %v, %v", last.Rest, last.Reason)
		}
	})
}

// A10: the ledger of a deleted task ends without a restart, too.
func TestLedgerOfADeletedTaskEnds(t *testing.T) {
	t.Attr("rules", "A10")
	run(t, func(r *rig) {
		task := r.submit(work())[0]
		g := r.lease(1, 0)
		r.say(lease.KindComplete, g[0])
		if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: task.ID}); err != nil {
			r.Fatal(err)
		}
		time.Sleep(lease.LedgerAfterDelete + time.Second)
		synctest.Wait()
		r.want(r.say(lease.KindComplete, g[0]), lease.VerdictCancelled, lease.TaskGone)
		if sorted, _ := r.timersIn(); sorted != 0 {
			r.Errorf("Timer has %d timers of nothing", sorted)
		}
	})
}
