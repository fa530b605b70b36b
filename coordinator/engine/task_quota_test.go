package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// X2, X5: a tenant may have as many tasks that have not ended as its quota allows, and no more:
// neither by submits nor by retries of tasks that have FAILED or were CANCELLED. Calls that make no
// task are not refused because of the quota.
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
		want("a fourth task", err, ErrTaskLimit)
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
		want("two tasks, with room for one", err, ErrTaskLimit)
		_, err = submit("d")
		want("one task, with room for one", err, nil)
		want("the retry of a cancelled task without room", retry(cancelled), ErrTaskLimit)
		failed := r.lease(1, 0)[0]
		_, err = r.Judge(r.Context(), home.Tenant, []*lease.Report{{
			Kind: lease.KindFail, TaskID: failed.Task.ID.String(), LeaseID: failed.LeaseID,
			Failure: &lease.Failure{Category: lease.Configuration},
		}})
		want("a failure", err, nil)
		want("the retry of a cancelled task", retry(cancelled), nil)
		want("the retry of a failed task without room", retry(failed.Task.ID), ErrTaskLimit)
		swept, err := r.Sweep(r.Context(), Sweep{Space: home, Choose: func(t *lease.Task) (lease.Command, bool) {
			return lease.Retry{Tenant: home.Tenant, Task: t.ID}, !t.Rest.Final()
		}})
		if want("a retry in bulk without room", err, ErrTaskLimit); swept.Changed != 0 {
			r.Errorf("a retry in bulk without room changed %d tasks", swept.Changed)
		}
		r.shutDown()
	})
}

// X5: a refused submit leaves nothing of its workspace, if that is new: no memory, no number, and
// no record. The workspace can be used later, also by a worker that waited in it meanwhile.
func TestRefusedSubmitMakesNoWorkspace(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		most := 0
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{MaxTasks: func(string) int { return most }})
		late := func() *lease.Spec {
			s := work()
			s.Deadline = lease.WallOf(time.Now().Add(-time.Second))
			return s
		}
		keyed := func(key string) *lease.Spec {
			s := work()
			s.IdempotencyKey = key
			return s
		}
		submitTo := func(space Space, specs ...*lease.Spec) error {
			digests := make([]lease.Digest, len(specs))
			for i, s := range specs {
				if err := s.Fill(lease.DefaultLimits()); err != nil {
					r.Fatal(err)
				}
				digests[i][0] = byte(i)
			}
			_, _, err := r.Submit(r.Context(), space, specs, digests)
			return err
		}
		attended := Space{home.Tenant, "attended"}
		waiting := r.joinFor(Wants{Space: attended, Worker: "w", Queues: []string{"q"}}, 1)
		memory := func() [5]int {
			return onLoop(r, func() [5]int {
				return [5]int{
					len(r.spaces.byName), len(r.spaces.byNumber), len(r.dir.byName), int(r.spaces.last),
					r.spaces.tallyOf(home.Tenant).spaces,
				}
			})
		}
		var field *lease.FieldError
		var exists *lease.ExistsError
		for what, tt := range map[string]struct {
			most    int
			refused func(error) bool
			specs   func() []*lease.Spec
		}{
			"no room":          {0, func(err error) bool { return errors.Is(err, ErrTaskLimit) }, func() []*lease.Spec { return many(1) }},
			"late":             {9, func(err error) bool { return errors.As(err, &field) }, func() []*lease.Spec { return []*lease.Spec{late()} }},
			"the second late":  {9, func(err error) bool { return errors.As(err, &field) }, func() []*lease.Spec { return []*lease.Spec{work(), late()} }},
			"one key of two":   {9, func(err error) bool { return errors.As(err, &exists) }, func() []*lease.Spec { return []*lease.Spec{keyed("k"), keyed("k")} }},
			"no room, one key": {0, func(err error) bool { return errors.Is(err, ErrTaskLimit) }, func() []*lease.Spec { return []*lease.Spec{keyed("k")} }},
		} {
			most = tt.most
			before := memory()
			for i := range 100 {
				if err := submitTo(Space{home.Tenant, fmt.Sprint("new", i)}, tt.specs()...); !tt.refused(err) {
					r.Fatalf("%s: %v", what, err)
				}
			}
			if err := submitTo(attended, tt.specs()...); !tt.refused(err) {
				r.Fatalf("%s: %v", what, err)
			}
			if after := memory(); after != before {
				r.Errorf("%s: spaces by name, by number, in the directory, the last number, and those of the tenant are %v after refused submits, want %v as before", what, after, before)
			}
			if n, ok := r.SpaceNumber(attended); ok {
				r.Errorf("%s: the space has number %d, want none", what, n)
			}
			r.consistent()
		}
		most = 9
		for _, space := range []Space{home, attended} {
			if err := submitTo(space, work()); err != nil {
				r.Error(err)
			}
		}
		if g := waiting.grants(); len(g) != 1 || onLoop(r, func() uint32 { return r.spaces.last }) != 2 {
			r.Errorf("%d grants in the space in which the worker waited, and the last number is %d; want one and 2",
				len(g), r.spaces.last)
		}
		r.shutDown()
	})
}

// X5: a tenant may have a limited number of workspaces, and another tenant may have as many. What
// is there already stays in use.
func TestLimitOfWorkspaces(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, st: memstore.New()}
		r.start(Config{})
		submitTo := func(space Space) error {
			s := work()
			if err := s.Fill(lease.DefaultLimits()); err != nil {
				r.Fatal(err)
			}
			_, _, err := r.Submit(r.Context(), space, []*lease.Spec{s}, make([]lease.Digest, 1))
			return err
		}
		update := func(space Space) error {
			_, err := r.UpdateQueue(r.Context(), space, "q", func(s *lease.Settings) { s.Paused = true })
			return err
		}
		first, last, further := Space{"acme", "first"}, Space{"acme", "last"}, Space{"acme", "further"}
		allow := func(err error) {
			r.Helper()
			if err != nil {
				r.Error(err)
			}
		}
		refuse := func(err error) {
			r.Helper()
			const want = "workspace_id: is new, and the limit of 100000 workspaces of a tenant is reached"
			if field := (*lease.FieldError)(nil); !errors.As(err, &field) || err.Error() != want {
				r.Errorf("a workspace beyond the limit: %v, want %s", err, want)
			}
		}
		const others = maxSpaces - 2
		allow(submitTo(first))
		onLoop(r, func() int { r.spaces.tenant("acme").spaces += others; return 0 }) // to make them takes long
		allow(submitTo(last))
		refuse(submitTo(further))
		refuse(update(further))
		allow(submitTo(first))
		allow(update(last))
		allow(submitTo(Space{"other", "further"}))
		onLoop(r, func() int { r.spaces.tenant("acme").spaces -= others; return 0 })
		r.consistent()
		allow(submitTo(further))
		r.shutDown()
	})
}

// X5: a tenant may set a limited number of things on its queues, and another tenant as many:
// settings are never forgotten. What was set can be changed at the limit, too.
func TestLimitOfSettings(t *testing.T) {
	t.Attr("rules", "X5 T13")
	run(t, func(r *rig) {
		pause := func(s *lease.Settings) { s.Paused = !s.Paused }
		weigh := func(keys ...string) func(*lease.Settings) {
			return func(s *lease.Settings) {
				s.Weights = map[string]float64{}
				for _, key := range keys {
					s.Weights[key] = 2
				}
			}
		}
		for i, c := range []struct {
			tenant, queue string
			change        func(*lease.Settings)
			left          int // how much the tenant may still set
			allowed       bool
		}{
			{"acme", "first", pause, 1, true},
			{"acme", "second", pause, 0, false},
			{"acme", "first", pause, 0, true},
			{"acme", "first", weigh("a"), 0, false},
			{"acme", "first", weigh("a", "b"), 1, false},
			{"acme", "first", weigh("a", "b"), 2, true},
			{"acme", "first", weigh("c", "d"), 0, true},
			{"acme", "first", weigh("c"), 0, true},
			{"acme", "second", pause, 1, true},
			{"other", "first", pause, maxSettings, true},
		} {
			others := 0
			onLoop(r, func() int { // to set so much takes long
				n := r.spaces.tallyOf(c.tenant)
				others = maxSettings - c.left - n.settings
				n.settings += others
				return 0
			})
			_, err := r.UpdateQueue(r.Context(), Space{c.tenant, "w"}, c.queue, c.change)
			if field := (*lease.FieldError)(nil); (err == nil) != c.allowed || err != nil && !errors.As(err, &field) {
				r.Errorf("update %d: %v, want it to be allowed: %t", i, err, c.allowed)
			}
			onLoop(r, func() int { r.spaces.tenant(c.tenant).settings -= others; return 0 })
		}
	})
}
