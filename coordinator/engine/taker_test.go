package engine

import (
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// waitingTakers returns how many takers wait in line for work of a queue.
func (r *rig) waitingTakers(name string) int {
	r.Helper()
	synctest.Wait()
	return onLoop(r, func() int {
		s := r.spaces.named(home)
		if s == nil || s.queues[name] == nil {
			return 0
		}
		return s.queues[name].available.Len()
	})
}

// A call that got nothing and a session that left are removed from the line of takers.
func TestTakersThatLeftAreForgotten(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(work())
		r.lease(1, 0)
		for range 10 {
			r.lease(1, 0)
			c, _ := r.join("i", 1)
			r.Leave(c.Member, false)
		}
		if n := r.waitingTakers("q"); n != 0 {
			r.Errorf("%d takers wait in line, want 0", n)
		}
	})
}

// W2: after an update, a session gets nothing from the queues that it no longer names.
func TestUpdateReplacesTheQueues(t *testing.T) {
	t.Attr("rules", "W2")
	run(t, func(r *rig) {
		r.submit(work()) // so that the queue exists
		r.lease(1, 0)
		c, _ := r.join("i", 1)
		r.Update(c.Member, Wants{Space: home, Worker: "w", Queues: []string{"other"}}, 1)
		r.submit(work())
		if n := len(c.grants()); n != 0 {
			r.Errorf("%d grants from the old queue, want 0", n)
		}
		r.submit(&lease.Spec{Queue: "other"})
		if n := len(c.grants()); n != 1 {
			r.Errorf("%d grants from the new queue, want 1", n)
		}
	})
}

// T12, within a queue: takers get tasks in turn. A taker for which there is no task keeps its
// place, and does not block the others.
func TestTakersTakeTurns(t *testing.T) {
	run(t, func(r *rig) {
		picky := r.joinFor(Wants{Space: home, Worker: "p", Queues: []string{"q"}, Types: []string{"rare"}}, 10)
		a := r.joinFor(Wants{Space: home, Worker: "a", Queues: []string{"q"}}, 10)
		b := r.joinFor(Wants{Space: home, Worker: "b", Queues: []string{"q"}}, 2)
		r.submit(many(6)...)
		if p, x, y := len(picky.grants()), len(a.grants()), len(b.grants()); p != 0 || x != 4 || y != 2 {
			r.Errorf("%d grants to the taker of type rare, %d to a and %d to b; want 0, 4 and 2", p, x, y)
		}
		r.submit(&lease.Spec{Queue: "q", Type: "rare"})
		if n := len(picky.grants()); n != 1 {
			r.Errorf("%d grants to the taker of type rare when a task of this type came, want 1", n)
		}
	})
}

// A1: an entry in the index of waiting tasks that is wrong, because its task has a live lease,
// gives nobody that lease, and does not block its line.
func TestWrongIndexEntryGivesNoLease(t *testing.T) {
	t.Attr("rules", "A1")
	run(t, func(r *rig) {
		tasks := r.submit(many(2)...)
		wrong, _ := records.Index(tasks[0])
		first := r.lease(1, 0)
		r.crash()
		change := func(do func(b *store.Batch)) {
			r.Helper()
			var b store.Batch
			do(&b)
			if err := r.st.Commit(r.Context(), &b); err != nil {
				r.Fatal(err)
			}
		}
		change(func(b *store.Batch) { b.Put(wrong.Keyspace, wrong.Key(), nil) })
		r.start(Config{})
		if g := r.lease(2, 0); len(g) != 1 || g[0].Task.ID != tasks[1].ID {
			r.Errorf("leased %+v, want only the task without a lease", g)
		}
		r.want(r.say(lease.KindComplete, first[0]), lease.VerdictCommitted, lease.None)
		r.crash()
		change(func(b *store.Batch) { b.Delete(wrong.Keyspace, wrong.Key()) })
		r.start(Config{})
	})
}
