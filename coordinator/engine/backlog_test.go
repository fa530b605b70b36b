package engine

import (
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/lease"
)

// W11: who has too much waiting for him gets no new work, whatever his slots; with the room comes the work.
func TestFullBacklogGetsNoWork(t *testing.T) {
	t.Attr("rules", "W11")
	run(t, func(r *rig) {
		c := &crew{}
		m := c.member("i", Wants{Space: home, Worker: "w", Queues: []string{"q"}}, 100)
		m.Backlog = &Backlog{}
		if err := r.Join(m); err != nil {
			r.Fatal(err)
		}
		var specs []*lease.Spec
		for range 12 {
			specs = append(specs, &lease.Spec{Queue: "q", Payload: make([]byte, 1<<20-2048)})
		}
		r.submit(specs...)
		for taken := 0; taken < 12; taken += 4 {
			synctest.Wait()
			granted, want := c.grants(), min(taken+5, 12)
			if len(granted) != want {
				r.Fatalf("%d are granted while %d were sent, want %d", len(granted), taken, want)
			}
			for i, g := range granted[taken : taken+4] {
				if m.Backlog.Sent(g.Bytes) != (i == 0 && want == taken+5) {
					r.Errorf("number %d: wrong word on room", taken+i)
				}
			}
			if err := r.Room(home.Tenant, m.Session); err != nil {
				r.Fatal(err)
			}
		}
	})
}

// W11, W12: the task that fills the backlog of the worker that goes first opens the rest to others.
func TestFullBacklogOpensPreferredTasks(t *testing.T) {
	t.Attr("rules", "W11 W12")
	run(t, func(r *rig) {
		c := &crew{}
		a := c.member("a", Wants{Space: home, Worker: "a", Queues: []string{"q"}}, 10)
		a.Backlog = &Backlog{}
		if err := r.Join(a); err != nil {
			r.Fatal(err)
		}
		r.task(kin("k", lease.Preferred))
		b := r.worker("b", 10, nil)
		r.task(kin("k", lease.Preferred)) // now b has its turn before a
		a.Backlog.Add(maxBacklog - 4096)
		var specs []*lease.Spec
		for range 10 {
			s := work()
			kin("k", lease.Preferred)(s)
			specs = append(specs, s)
		}
		r.submit(specs...)
		if n := len(c.grants()) + len(b.grants()); n != 12 {
			r.Errorf("%d of 12 are granted: %d to the slow one", n, len(c.grants()))
		}
	})
}
