package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// hang lets time pass while workers send heartbeats for their leases, and do nothing else.
func (r *rig) hang(d time.Duration, leases ...Granted) {
	r.Helper()
	const step = 10 * time.Second
	for ; d > 0; d -= step {
		time.Sleep(step)
		for _, g := range leases {
			r.want(r.say(lease.KindHeartbeat, g), lease.VerdictCommitted, lease.None)
		}
	}
}

// wantBlocker checks which lease is the oldest blocker of a queue in both calls that show it; nil:
// none is.
func (r *rig) wantBlocker(queue string, g *Granted) {
	r.Helper()
	want := Blocker{}
	if g != nil {
		want = Blocker{Since: g.Task.Lease.GrantedAt, Task: g.Task.ID}
	}
	one, _, err := r.Queue(r.Context(), home, queue, 0)
	if err != nil || one.Blocker != want {
		r.Errorf("the oldest blocker of queue %s is %+v (%v), want %+v", queue, one.Blocker, err, want)
	}
	all, err := r.Queues(r.Context(), home, "", 100, 0)
	if err != nil {
		r.Fatal(err)
	}
	for _, q := range all {
		if q.Name == queue && q.Blocker != want {
			r.Errorf("in the list, the oldest blocker of queue %s is %+v, want %+v", queue, q.Blocker, want)
		}
	}
}

// The oldest lease that holds a concurrency key for which tasks of a queue are parked is its oldest
// blocker: it stays so while others come and go, and over a restart and a crash. A lease for whose
// key nobody waits is none.
func TestOldestBlocker(t *testing.T) {
	run(t, func(r *rig) {
		r.submit(specWithKey("idle", 1))
		idle := r.lease(1, 0)[0]
		r.submit(specWithKey("k", 1))
		hung := r.lease(1, 0)[0]
		r.hang(time.Minute, idle, hung)
		r.wantBlocker("q", nil)

		waiting := r.submit(specWithKey("k", 1), specWithKey("k", 1))
		r.lease(9, 0) // parks them
		r.wantBlocker("q", &hung)
		r.hang(time.Minute, idle, hung)
		r.submit(specWithKey("l", 2), specWithKey("l", 2), specWithKey("l", 2), specWithKey("l", 2))
		two := r.lease(9, 0)
		r.wantBlocker("q", &hung)
		r.restart(Config{})
		r.wantBlocker("q", &hung)
		r.hang(time.Minute, idle, hung, two[0], two[1])
		r.kill()
		r.wantBlocker("q", &hung)

		for _, task := range waiting {
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: task.ID}); err != nil {
				r.Fatal(err)
			}
		}
		r.say(lease.KindComplete, hung)
		r.wantBlocker("q", &two[0])
		r.say(lease.KindComplete, two[0])
		r.wantBlocker("q", &two[1])
		three := r.lease(9, 0)
		if len(three) != 1 {
			r.Fatalf("%d tasks of the key are granted, want 1", len(three))
		}
		r.wantBlocker("q", &two[1])
		r.say(lease.KindComplete, two[1])
		r.wantBlocker("q", nil) // the last one waits for a worker now
		r.say(lease.KindComplete, three[0])
	})
}

// When the last parked task of a queue is gone, nothing blocks the queue, also if that task was on
// disk only.
func TestNoBlockerWithoutAParkedTask(t *testing.T) {
	for _, start := range []func(*rig){func(*rig) {}, (*rig).kill} {
		run(t, func(r *rig) {
			r.submit(specWithKey("k", 1))
			hung := r.lease(1, 0)[0]
			waiting := r.submit(specWithKey("k", 1))[0]
			r.lease(1, 0)
			start(r)
			r.wantBlocker("q", &hung)
			if _, err := r.Cancel(r.Context(), lease.Cancel{Tenant: home.Tenant, Task: waiting.ID}); err != nil {
				r.Fatal(err)
			}
			r.wantBlocker("q", nil)
		})
	}
}

// A queue has the blockers of its own tasks alone, whoever holds their key, and other workspaces do
// not matter. If a space has more blockers than one look goes through, the oldest is found, and if
// many queues wait for that one, some of them.
func TestOldestBlockersOfSeveralQueues(t *testing.T) {
	defer func(most int) { mostBlockers = most }(mostBlockers)
	run(t, func(r *rig) {
		var held []Granted
		for i := range 3 {
			r.submit(specWithKey(fmt.Sprint("k", i), 1))
			held = append(held, r.lease(1, 0)[0])
			time.Sleep(time.Second)
		}
		queues := []string{"c", "b", "a"}
		for i := range 3 { // queue c waits for all, b for the last two
			for j := range i + 1 {
				s := specWithKey(fmt.Sprint("k", i), 1)
				s.Queue = queues[j]
				r.submit(s)
				if _, err := r.Lease(r.Context(), LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{s.Queue}}, Max: 1}); err != nil {
					r.Fatal(err)
				}
			}
		}
		for i := range held {
			r.wantBlocker(queues[i], &held[i])
		}
		r.wantBlocker("q", nil)
		mostBlockers = 1
		r.wantBlocker("c", &held[0])
		r.wantBlocker("b", nil)
		r.say(lease.KindComplete, held[0])
		r.wantBlocker("b", &held[1]) // the first queue of the blocker that is the oldest now
		r.wantBlocker("c", nil)
		mostBlockers = 1000
		r.wantBlocker("c", &held[1])
	})
}
