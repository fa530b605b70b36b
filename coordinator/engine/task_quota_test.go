package engine

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// X2, X5: a tenant may have as many tasks that have not ended as its quota allows, and no more: neither by submits nor by retries of tasks that have FAILED or
// were CANCELLED. Calls that make no task are not refused because of the quota.
func TestQuotaOfTasks(t *testing.T) {
	t.Attr("rules", "X2 X5")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{MaxTasks: func(tenant string) int { return map[string]int{home.Tenant: 3}[tenant] }})
		submit := func(keys ...string) ([]lease.Submitted, error) {
			specs := many(len(keys))
			for i, s := range specs {
				s.IdempotencyKey = keys[i]
				if err := s.Fill(lease.DefaultLimits()); err != nil {
					r.Fatal(err)
				}
			}
			made, _, err := r.Submit(r.Context(), home, specs, make([]lease.Digest, len(specs)))
			return made, err
		}
		want := func(what string, err, wanted error) {
			r.Helper()
			if !errors.Is(err, wanted) {
				r.Errorf("%s: %v, want %v", what, err, wanted)
			}
		}
		retryBy := func(tenant string, id lease.TaskID) error {
			_, err := r.Retry(r.Context(), lease.Retry{Tenant: tenant, Task: id})
			return err
		}
		retry := func(id lease.TaskID) error { return retryBy(home.Tenant, id) }
		first, err := submit("a", "b")
		want("two tasks", err, nil)
		_, err = submit("a", "b", "c", "c")
		want("one task more, and three that are there", err, nil)
		_, err = submit("a")
		want("a task that is there", err, nil)
		_, err = submit("d")
		want("a fourth task", err, ErrFull)
		var state *lease.StateError
		if err := retry(first[0].Task.ID); !errors.As(err, &state) {
			r.Errorf("the retry of a task that has not ended: %v, want a StateError", err)
		}
		unknown := lease.TaskID{Space: first[0].Task.ID.Space, Seq: 1 << 30}
		want("the retry of an unknown task", retry(unknown), lease.ErrNotFound)

		cancelled := first[0].Task.ID
		_, err = r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: cancelled})
		want("a cancel", err, nil)
		want("the retry of another tenant's task without room", retryBy("umbra", cancelled), lease.ErrNotFound)
		_, err = submit("d", "e")
		want("two tasks, with room for one", err, ErrFull)
		_, err = submit("d")
		want("one task, with room for one", err, nil)
		want("the retry of a cancelled task without room", retry(cancelled), ErrFull)
		failed := r.lease(1, 0)[0]
		_, err = r.Judge(r.Context(), home.Tenant, []*lease.Report{{
			Kind: lease.KindFail, TaskID: failed.Task.ID.String(), LeaseID: failed.LeaseID, Failure: &lease.Failure{Category: lease.Configuration},
		}})
		want("a failure", err, nil)
		want("the retry of a cancelled task", retry(cancelled), nil)
		want("the retry of a failed task without room", retry(failed.Task.ID), ErrFull)
		swept, err := r.Sweep(r.Context(), Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
			return lease.Retry{Tenant: home.Tenant, Task: t.ID}, !t.Rest.Final()
		}})
		if want("a retry in bulk without room", err, ErrFull); swept.Changed != 0 {
			r.Errorf("a retry in bulk without room changed %d tasks", swept.Changed)
		}
		r.shutDown()
	})
}
