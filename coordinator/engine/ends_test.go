package engine

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/lease"
)

// told waits until all is committed, and returns what Take has, and whether there was a token for
// it.
func (s *Ends) told() (ids []lease.TaskID, token bool) {
	synctest.Wait()
	select {
	case <-s.more:
		token = true
	default:
	}
	return s.Take(), token
}

// Who listens to tasks is told once of each that ends, however it does, and of no other.
func TestEnds(t *testing.T) {
	run(t, func(r *rig) {
		ends := r.Ends()
		defer ends.Close()
		tasks := r.submit(many(5)...)
		done, failed, cancelled, deleted, left := tasks[0].ID, tasks[1].ID, tasks[2].ID, tasks[3].ID, tasks[4].ID
		for _, task := range tasks {
			ends.Listen(task.ID)
			ends.Listen(task.ID)
		}
		granted := r.lease(2, 0)
		if ids, token := ends.told(); len(ids) != 0 || token {
			r.Fatalf("of tasks that have not ended: %v, %t", ids, token)
		}
		r.say(lease.KindComplete, granted[0])
		r.say(lease.KindFail, granted[1]) // it has further attempts
		if ids, token := ends.told(); !slices.Equal(ids, []lease.TaskID{done}) || !token {
			r.Fatalf("of a completed task: %v, %t", ids, token)
		}
		for _, id := range []lease.TaskID{failed, cancelled} {
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: id}); err != nil {
				r.Fatal(err)
			}
		}
		if err := r.Delete(r.Context(), lease.Delete{Tenant: home.Tenant, Task: deleted}); err != nil {
			r.Fatal(err)
		}
		if ids, token := ends.told(); !slices.Equal(ids, []lease.TaskID{failed, cancelled, deleted}) || !token {
			r.Fatalf("of a failed, a cancelled and a deleted task: %v, %t", ids, token)
		}
		if !ends.Has(done) || !ends.Has(left) || ends.Len() != 5 {
			r.Errorf("what ended is forgotten: %v", ends.ids)
		}
		if len(r.hub.ends) != 1 {
			r.Errorf("the engine keeps what has ended: %v", r.hub.ends)
		}
	})
}

// A task is told of again only after another Listen; one that is forgotten is not told of, even if
// it had ended before.
func TestEndsAreToldOnce(t *testing.T) {
	run(t, func(r *rig) {
		ends := r.Ends()
		defer ends.Close()
		id := r.submit(work())[0].ID
		cancel := func() {
			r.Helper()
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: id}); err != nil {
				r.Fatal(err)
			}
		}
		retry := func() {
			r.Helper()
			if _, err := r.Retry(r.Context(), lease.Retry{Tenant: home.Tenant, Task: id}); err != nil {
				r.Fatal(err)
			}
		}
		ends.Listen(id)
		for range 3 { // with a reader that is slow, only the first counts
			cancel()
			retry()
		}
		if ids, _ := ends.told(); !slices.Equal(ids, []lease.TaskID{id}) {
			r.Errorf("three ends of a slow reader: %v, want one", ids)
		}
		ends.Listen(id)
		cancel()
		if ids, token := ends.told(); !slices.Equal(ids, []lease.TaskID{id}) || !token {
			r.Errorf("after another Listen: %v, %t", ids, token)
		}
		retry()
		ends.Listen(id)
		ends.Forget(id)
		cancel()
		if ids, token := ends.told(); len(ids) != 0 || token {
			r.Errorf("of a forgotten task: %v, %t", ids, token)
		}
		retry()
		ends.Listen(id)
		cancel()
		ends.Forget(id)
		if ids, _ := ends.told(); len(ids) != 0 {
			r.Errorf("of a task that was forgotten after its end: %v", ids)
		}
	})
}

// All who listen to a task are told, and who closes leaves nothing behind.
func TestEndsOfManyListeners(t *testing.T) {
	run(t, func(r *rig) {
		id, other := r.submit(work())[0].ID, r.submit(work())[0].ID
		var all []*Ends
		for range 10 {
			ends := r.Ends()
			ends.Listen(id)
			ends.Listen(other)
			all = append(all, ends)
		}
		for _, gone := range []int{0, 5, 9} {
			all[gone].Close()
			all[gone].Close()
		}
		r.say(lease.KindComplete, r.lease(1, 0)[0])
		for i, ends := range all {
			want := []lease.TaskID{id}
			if i == 0 || i == 5 || i == 9 {
				want = nil
			}
			if ids, _ := ends.told(); !slices.Equal(ids, want) {
				r.Errorf("listener %d was told of %v, want %v", i, ids, want)
			}
			ends.Close()
		}
		if len(r.hub.ends) != 0 {
			r.Errorf("%d tasks are listened to by nobody", len(r.hub.ends))
		}
	})
}

// An end is told only when it is durable.
func TestEndsAreDurable(t *testing.T) {
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		ends := r.Ends()
		defer ends.Close()
		ends.Listen(id)
		granted := r.lease(1, 0)
		release := r.holdCommit()
		report := &lease.Report{
			Kind: lease.KindComplete, TaskID: id.String(), LeaseID: granted[0].LeaseID, Result: &lease.Result{},
		}
		if err := r.Post(home.Tenant, []*lease.Report{report}, func([]lease.Answer, error) {}); err != nil {
			t.Fatal(err)
		}
		if ids, _ := ends.told(); len(ids) != 0 {
			r.Error("an end was told before its commit")
		}
		release()
		if ids, _ := ends.told(); !slices.Equal(ids, []lease.TaskID{id}) || r.version(id).State() != lease.Completed {
			r.Errorf("after the commit: %v", ids)
		}
	})
}

// A stopped engine says so, and Listen does no harm.
func TestEndsOfAStoppedEngine(t *testing.T) {
	run(t, func(r *rig) {
		id := r.submit(work())[0].ID
		ends := r.Ends()
		ends.Listen(id)
		r.shutDown()
		<-ends.Stopped()
		ends.Listen(lease.TaskID{Space: id.Space, Seq: id.Seq + 1})
		ends.Close()
		r.start(Config{})
	})
}
