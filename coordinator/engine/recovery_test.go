package engine

import (
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// What happens to leases at a restart.

// A9: the time for which the coordinator was down does not count towards the heartbeat timeout. A lease whose worker stays silent still expires.
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

// A9: a lease has the same time left after a restart as before it, also if the coordinator had served for an hour before the grant.
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

// A9: the serving clock is saved while leases are live, so that a silent lease ends even if the coordinator crashes every 10 s.
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

// A9: --recovery=invalidate ends all leases, also for later starts; this does not count as a loss.
func TestInvalidateEndsOlderLeases(t *testing.T) {
	t.Attr("rules", "A9")
	run(t, func(r *rig) {
		r.submit(work())
		g := r.lease(1, 0)
		r.restart(Config{Recovery: InvalidateLeases})
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

// T6: the deadline of a leased task ends it on time also after a restart, although its lease is still live.
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
