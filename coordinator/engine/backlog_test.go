package engine

import (
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/lease"
)

// W11: a session gets no new task while the backlog that waits to be sent to it is full, even if it
// has free slots. When the backlog has room again, the session gets work again.
func TestFullBacklogGetsNoWork(t *testing.T) {
	t.Attr("rules", "W11")
	run(t, func(r *rig) {
		c := &testSession{}
		m := c.newMember("i", Wants{Space: home, Worker: "w", Queues: []string{"q"}}, 100)
		m.Backlog = &Backlog{}
		r.Join(m)
		var specs []*lease.Spec
		for range 12 {
			specs = append(specs, &lease.Spec{Queue: "q", Payload: make([]byte, 1<<20-2048)})
		}
		r.submit(specs...)
		for taken := 0; taken < 12; taken += 4 {
			synctest.Wait()
			granted, want := c.grants(), min(taken+5, 12)
			if len(granted) != want {
				r.Fatalf("%d tasks are granted after %d were sent, want %d", len(granted), taken, want)
			}
			for i, g := range granted[taken : taken+4] {
				// Sent returns true only when a full backlog falls below its bound: for the first
				// one
				if want := i == 0 && want == taken+5; m.Backlog.Sent(g.Bytes) != want {
					r.Errorf("grant %d was sent: Sent returned %v, want %v", taken+i, !want, want)
				}
			}
			r.BacklogHasRoom(home.Tenant, m.Session)
		}
	})
}

// W11, W12: PREFERRED tasks go first to the worker that already has tasks of their key. When one of
// them fills that worker's backlog, the rest go to other workers.
func TestPreferredTasksOfAFullBacklogGoToOtherWorkers(t *testing.T) {
	t.Attr("rules", "W11 W12")
	run(t, func(r *rig) {
		c := &testSession{}
		a := c.newMember("a", Wants{Space: home, Worker: "a", Queues: []string{"q"}}, 10)
		a.Backlog = &Backlog{}
		r.Join(a)
		r.submitWith(withAffinity("k", lease.Preferred))
		b := r.worker("b", 10, nil)
		r.submitWith(withAffinity("k", lease.Preferred)) // a takes it, so b's turn comes before a's now
		a.Backlog.Add(maxBacklog - 4096)
		var specs []*lease.Spec
		for range 10 {
			s := work()
			withAffinity("k", lease.Preferred)(s)
			specs = append(specs, s)
		}
		r.submit(specs...)
		if n := len(c.grants()) + len(b.grants()); n != 12 {
			r.Errorf("%d tasks are granted, %d of them to the worker that reads nothing; want all 12", n, len(c.grants()))
		}
	})
}
