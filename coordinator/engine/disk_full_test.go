package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// While the disk is spent no task is granted, neither to sessions nor to calls that wait or do not,
// nor when a concurrency key gets room. Starts, heartbeats, reports of every kind, cancels and
// deletions go on, and an expiry: what they leave waits, too. ExplainTask names the disk. Once
// there is room, everything that waits is granted without a call.
func TestNoGrantsWhileTheDiskIsSpent(t *testing.T) {
	var spent atomic.Bool
	runWith(t, Config{DiskSpent: spent.Load}, func(r *rig) {
		worker, session := r.join("i", 10)
		keyed := r.submit(specWithKey("k", 1), specWithKey("k", 1))
		r.submit(many(4)...)
		held := worker.grants()
		if len(held) != 5 {
			r.Fatalf("%d tasks were granted, want all but that without room under its key", len(held))
		}
		spent.Store(true)
		for i, kind := range []lease.Kind{lease.KindComplete, lease.KindRelease, lease.KindStart, lease.KindHeartbeat} {
			r.want(r.say(kind, held[i]), lease.VerdictCommitted, lease.None)
		}
		more := r.submit(many(3)...)
		if got := r.lease(1, 0); len(got) != 0 {
			r.Errorf("a call that does not wait was granted %v, want nothing", got)
		}
		if got := r.lease(1, time.Second); len(got) != 0 {
			r.Errorf("a call that waits was granted %v, want nothing", got)
		}
		if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: more[0].ID}); err != nil {
			r.Error(err)
		}
		if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: more[1].ID}); err != nil {
			r.Error(err)
		}
		time.Sleep(lease.DefaultHeartbeatTimeout)
		r.Heard(home.Tenant, session) // it has left one grant without an answer
		if got := worker.grants(); len(got) != len(held) {
			r.Errorf("the session was granted %d tasks, want none", len(got)-len(held))
		}
		wait := []lease.TaskID{more[2].ID, keyed[1].ID}
		for _, g := range held[1:] { // released, expired, expired, never acknowledged
			wait = append(wait, g.Task.ID)
		}
		for _, id := range wait {
			if x := r.explain(id); x.Task.State() != lease.Ready || x.Findings[0].Code != lease.FoundDiskFull {
				r.Errorf("task %s is %v, and the findings are %+v; want READY, and the disk first",
					id, x.Task.State(), x.Findings)
			}
		}
		spent.Store(false)
		time.Sleep(idleTick)
		if got := len(worker.grants()) - len(held); got != len(wait) {
			r.Errorf("once there was room, %d tasks were granted, want the %d that waited", got, len(wait))
		}
	})
}

// The reasons of the queue and of the workers come after the disk: they will hold when there is
// room. A task that does not wait has nothing to do with the disk.
func TestExplainNamesTheDiskFirst(t *testing.T) {
	t.Attr("rules", "S6")
	var spent atomic.Bool
	runWith(t, Config{DiskSpent: spent.Load}, func(r *rig) {
		r.join("i", 1)
		running, waiting := r.submit(work())[0], r.submit(work())[0]
		spent.Store(true)
		spec := work()
		spec.Queue = "free"
		free := r.submit(spec)[0]
		r.joinFor(Wants{Space: home, Worker: "free", Queues: []string{"free"}}, 1)
		r.wantFindings(free.ID, lease.FoundDiskFull)
		spent.Store(false)
		r.setQueue(func(s *lease.Settings) { s.Paused = true })
		spent.Store(true)
		synctest.Wait()
		r.wantFindings(waiting.ID, lease.FoundDiskFull, lease.FoundQueuePaused, lease.FoundWorkersBusy)
		if f := r.explain(running.ID).Findings[0]; f.Code == lease.FoundDiskFull {
			r.Errorf("the first finding of a task that runs is %+v, want its lease", f)
		}
	})
}

// A loop that may not grant does not spin: while the disk is spent, it looks no more often than it
// ticks.
func TestLoopRestsWhileTheDiskIsSpent(t *testing.T) {
	var asked atomic.Int64
	var spent atomic.Bool
	runWith(t, Config{DiskSpent: func() bool { asked.Add(1); return spent.Load() }}, func(r *rig) {
		spent.Store(true)
		r.join("i", 1)
		r.submit(work())
		synctest.Wait()
		before := asked.Load()
		time.Sleep(100 * idleTick)
		if n := asked.Load() - before; n < 99 || n > 101 {
			r.Errorf("within 100 ticks, the disk was looked at %d times, want each tick", n)
		}
		spent.Store(false)
	})
}
