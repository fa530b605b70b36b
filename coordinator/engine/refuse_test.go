package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// A stream that refuses tasks waits for the loop each time. Otherwise a flood of refusals would fill the memory while the loop waits for a commit.
func TestRefusalWaitsForTheLoop(t *testing.T) {
	run(t, func(r *rig) {
		c := r.worker("w", 1, nil)
		r.submit(work())
		g := c.grants()[0]
		r.overload(time.Minute)
		began := time.Now()
		r.Refuse(home.Tenant, c.Session, g.Task.ID.String(), g.LeaseID)
		if took := time.Since(began); took < time.Minute {
			r.Errorf("a refusal waited for %v, want at least a minute, for which the loop stood still", took)
		}
	})
}

// A session that refuses a task because it already runs the task's concurrency key gets one task of a key at a time from then on. If the engine sees
// no other task of the key, it also gives the session no work for coolDownTime, and then again.
func TestRefusedTask(t *testing.T) {
	refuse := func(r *rig, c *testSession, g Granted) {
		r.Refuse(home.Tenant, c.Session, g.Task.ID.String(), g.LeaseID)
		synctest.Wait()
	}
	run(t, func(r *rig) {
		c := r.worker("w", 10, nil)
		r.submitWith(withKey("k", 5))
		refuse(r, c, c.grants()[0])
		r.submitWith(withKey("other", 5))
		time.Sleep(coolDownTime - time.Millisecond)
		r.wantGranted(c, "k")
		time.Sleep(2 * time.Millisecond)
		r.wantGranted(c, "k", "k", "other")
		if f := c.grants()[1].Task; f.Failures != 0 || f.Losses != 0 || f.Releases != 0 {
			r.Errorf("the refusal counts as %d failures, %d losses and %d releases, want none", f.Failures, f.Losses, f.Releases)
		}
	})
	run(t, func(r *rig) { // a second refusal begins the time without work anew
		c := r.worker("w", 10, nil)
		r.submitWith(withKey("k", 5))
		r.submitWith(withKey("other", 5))
		refuse(r, c, c.grants()[0])
		time.Sleep(coolDownTime - time.Second)
		refuse(r, c, c.grants()[1])
		time.Sleep(coolDownTime - time.Millisecond)
		r.wantGranted(c, "k", "other")
		time.Sleep(2 * time.Millisecond)
		r.wantGranted(c, "k", "other", "k", "other")
	})
	run(t, func(r *rig) {
		c := r.worker("w", 10, nil)
		r.submitWith(withKey("k", 5))
		r.submitWith(withKey("k", 5))
		refuse(r, c, c.grants()[1])
		r.submitWith(withKey("other", 5))
		r.wantGranted(c, "k", "k", "other")
		r.want(r.sayBy(c.Session, lease.KindComplete, c.grants()[0]), lease.VerdictCommitted, lease.None)
		r.wantGranted(c, "k", "k", "other", "k")
	})
}
