package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// A stream that refuses tasks waits for the loop each time. Otherwise a flood of refusals would
// fill the memory while the loop waits for a commit.
func TestRefusalWaitsForTheLoop(t *testing.T) {
	run(t, func(r *rig) {
		c := r.worker("w", 1, nil)
		r.submit(work())
		g := c.grants()[0]
		r.overload(time.Minute)
		began := time.Now()
		_ = r.Refuse(home.Tenant, c.Session, g.Task.ID.String(), g.LeaseID)
		if took := time.Since(began); took < time.Minute {
			r.Errorf("a refusal waited for %v, want at least a minute, for which the loop stood still", took)
		}
	})
}

func (r *rig) refuse(c *testSession, g Granted) {
	r.Helper()
	if err := r.Refuse(home.Tenant, c.Session, g.Task.ID.String(), g.LeaseID); err != nil {
		r.Errorf("the refusal of a task with a key has the error %v", err)
	}
	synctest.Wait()
}

// The pause in which a session gets no task of a key doubles with each refusal in a row, up to
// refusedMost. Once the session has taken a task of the key, its next pause is a short one.
func TestPausesAfterRefusalsGrow(t *testing.T) {
	run(t, func(r *rig) {
		c := r.worker("w", 1, nil)
		refuse := func(key string, want time.Duration) {
			r.Helper()
			n := len(c.grants())
			if g := c.grants()[n-1]; g.Task.Spec.ConcurrencyKey != key {
				r.Fatalf("the last task has the key %q, want %q", g.Task.Spec.ConcurrencyKey, key)
			}
			r.refuse(c, c.grants()[n-1])
			time.Sleep(want - time.Millisecond)
			if len(c.grants()) != n {
				r.Errorf("the session got a task of key %q again within %v", key, want)
			}
			time.Sleep(2 * time.Millisecond)
			if len(c.grants()) != n+1 {
				r.Fatalf("the session got no task of key %q within %v", key, want)
			}
		}
		r.submitWith(withKey("k", 1))
		for pause := refusedFor; pause < refusedMost; pause *= 2 {
			refuse("k", pause)
		}
		refuse("k", refusedMost)
		refuse("k", refusedMost)
		r.want(r.sayBy(c.Session, lease.KindComplete, c.grants()[len(c.grants())-1]), lease.VerdictCommitted, lease.None)
		r.submitWith(withKey("k", 1))
		refuse("k", refusedFor)
		refuse("k", 2*refusedFor)
	})
}

// Of a session that refuses other keys all the time, not more than maxRefused are remembered.
func TestRefusedKeysAreForgotten(t *testing.T) {
	run(t, func(r *rig) {
		c := r.worker("w", 1, nil)
		for n := range 3 * maxRefused {
			id := r.submitWith(withKey(fmt.Sprint("k", n), 1))
			r.refuse(c, c.grants()[n])
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: id}); err != nil {
				r.Fatal(err)
			}
			time.Sleep(refusedFor + time.Millisecond)
		}
		if n := onLoop(r, func() int { return len(r.sessions.find(c.Session).refused.keys) }); n > maxRefused {
			r.Errorf("%d keys are remembered, want at most %d", n, maxRefused)
		}
	})
}

// A session that refuses a task because it already runs the task's concurrency key gets one task of
// a key at a time from then on. If the engine sees no other task of the key, it also gives the
// session no task of the key for refusedFor, and other work at once. A session that refuses every
// key gets none.
func TestRefusedTask(t *testing.T) {
	run(t, func(r *rig) {
		c := r.worker("w", 10, nil)
		r.submitWith(withKey("k", 5))
		r.refuse(c, c.grants()[0])
		r.submitWith(withKey("other", 5))
		r.wantGranted(c, "k", "other")
		r.sayBy(c.Session, lease.KindAck, c.grants()[1])
		time.Sleep(refusedFor - time.Millisecond)
		r.wantGranted(c, "k", "other")
		time.Sleep(2 * time.Millisecond)
		r.wantGranted(c, "k", "other", "k")
		if f := c.grants()[2].Task; f.Failures != 0 || f.Losses != 0 || f.Releases != 0 {
			r.Errorf("the refusal counts as %d failures, %d losses and %d releases, want none", f.Failures, f.Losses, f.Releases)
		}
	})
	run(t, func(r *rig) { // it refuses as many keys as it may, and one more task waits
		c := r.worker("w", maxRefused, nil)
		for n := range maxRefused {
			r.submitWith(withKey(fmt.Sprint("k", n), 5))
		}
		for _, g := range c.grants() {
			r.refuse(c, g)
		}
		r.submit(work())
		if n := len(c.grants()); n != maxRefused {
			r.Errorf("the session has refused %d keys, and was granted %d tasks after that", maxRefused, n-maxRefused)
		}
		time.Sleep(refusedFor + time.Millisecond)
		if n := len(c.grants()); n != 2*maxRefused {
			r.Errorf("%v later it was granted %d tasks, want as many as it has slots", refusedFor, n-maxRefused)
		}
	})
	run(t, func(r *rig) {
		c := r.worker("w", 10, nil)
		r.submitWith(withKey("k", 5))
		r.submitWith(withKey("k", 5))
		r.refuse(c, c.grants()[1])
		r.submitWith(withKey("other", 5))
		r.wantGranted(c, "k", "k", "other")
		r.want(r.sayBy(c.Session, lease.KindComplete, c.grants()[0]), lease.VerdictCommitted, lease.None)
		r.wantGranted(c, "k", "k", "other", "k")
	})
}

// A refusal that changes nothing says why: the task has no concurrency key, or its lease is not one
// of the session. If the lease has ended, the worker has what it wants.
func TestRefusalThatChangesNothing(t *testing.T) {
	run(t, func(r *rig) {
		c, other := r.worker("w", 10, nil), r.worker("other", 0, nil)
		r.submit(work())
		r.submitWith(withKey("k", 5))
		plain, keyed := c.grants()[0], c.grants()[1]
		for _, refusal := range []struct {
			what         string
			session      string
			task, leased Granted
			want         error
		}{
			{"without a key", c.Session, plain, plain, ErrNoKey},
			{"by another session", other.Session, keyed, keyed, errNotHeld},
			{"by no session", "none", keyed, keyed, errNotHeld},
			{"under the lease of another task", c.Session, keyed, plain, errNotHeld},
			{"under a forged lease", c.Session, keyed, Granted{LeaseID: "forged"}, errNotHeld},
		} {
			if err := r.Refuse(home.Tenant, refusal.session, refusal.task.Task.ID.String(), refusal.leased.LeaseID); !errors.Is(err, refusal.want) {
				r.Errorf("the error of a refusal %s is %v, want %v", refusal.what, err, refusal.want)
			}
		}
		for _, g := range []Granted{plain, keyed} { // both leases have lived on, and the session gets work
			r.want(r.sayBy(c.Session, lease.KindComplete, g), lease.VerdictCommitted, lease.None)
			if err := r.Refuse(home.Tenant, c.Session, g.Task.ID.String(), g.LeaseID); err != nil {
				r.Errorf("the refusal of a lease that has ended has the error %v", err)
			}
		}
		r.submit(work())
		r.wantGranted(c, "", "k", "")
	})
}
