package engine

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// leaseUntil makes a call in a goroutine of its own, and returns once it waits. leave ends the
// call. request is what it holds in memory.
func (r *rig) leaseUntil(ask LeaseRequest) (leave func(), request weak.Pointer[string]) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error, 1)
	ask.Wants = Wants{Space: home, Worker: "w", Queues: []string{"q"}}
	request = weak.Make(&ask.Queues[0])
	go func() {
		_, err := r.Lease(ctx, ask)
		ended <- err
	}()
	synctest.Wait()
	return func() {
		r.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			r.Errorf("the call ended with %v, want %v", err, context.Canceled)
		}
		synctest.Wait()
	}, request
}

// W5, X5: a call whose caller has left before its turn is granted nothing, nothing of it is written
// or kept, and it is no call of its request: one that waits goes on to wait, and a repeat gets the
// task.
func TestCallThatWasGivenUpBeforeItsTurn(t *testing.T) {
	t.Attr("rules", "W5 S2 X5")
	for name, ask := range map[string]LeaseRequest{
		"without a wait":     {Max: 1},
		"with a wait":        {Max: 1, Wait: time.Hour},
		"its wait is over":   {Max: 1, Wait: time.Second},
		"of a request":       {Max: 1, Request: "r1"},
		"repeat of a waiter": {Max: 1, Request: "waits"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				wants := Wants{Space: home, Worker: "w", Queues: []string{"other"}}
				waits := r.leaseAside(LeaseRequest{Wants: wants, Max: 1, Wait: time.Hour, Request: "waits"})
				id := r.submit(work())[0].ID
				commits, block := 0, make(chan struct{})
				r.beforeCommits(func() { commits++ })
				r.enqueue(home.Tenant, func() { <-block })
				leave, request := r.leaseUntil(ask)
				time.Sleep(2 * time.Second)
				leave()
				if runtime.GC(); request.Value() != nil && ask.Wait != time.Second {
					r.Error("the call is in memory, although nobody waits for it")
				}
				close(block)
				synctest.Wait()
				if task := r.version(id); task.Lease != nil || task.Attempts > 0 || commits > 0 {
					r.Errorf("the task has the lease %v and %d attempts, and there were %d commits, want none", task.Lease, task.Attempts, commits)
				}
				if n := r.waitingTakers("q"); n > 0 {
					r.Errorf("%d calls wait for the task, want none", n)
				}
				r.submitTo("other")
				if g := waits(); len(g) != 1 {
					r.Errorf("the call that waited before gets %d tasks, want 1", len(g))
				}
				if ask.Request == "waits" {
					return
				}
				ask.Wants = Wants{Space: home, Worker: "w", Queues: []string{"q"}}
				if g := r.leaseAside(ask)(); len(g) != 1 || g[0].Task.ID != id {
					r.Errorf("the repeat gets tasks %s, want %d", sequencesOf(g), id.Seq)
				}
			})
		})
	}
}

// W5: a call that does not wait, and whose caller leaves while it goes on to look for a task, is
// granted nothing at its next turn.
func TestCallThatWasGivenUpBetweenItsTurns(t *testing.T) {
	t.Attr("rules", "W5")
	bound(t, 200, &triesPerTurn)
	run(t, func(r *rig) {
		n := 3 * triesPerTurn // more than the call and match look at in a round
		free := r.submitManyOfAHeldKey(n)
		held, block := make(chan struct{}), make(chan struct{})
		r.enqueue(home.Tenant, func() { <-held }) // so that the loop takes the next two at once
		synctest.Wait()
		leave, _ := r.leaseUntil(LeaseRequest{Max: 1, Request: "r1"})
		parked := 0
		r.enqueue(home.Tenant, func() { parked = int(r.spaces.total.parked); <-block })
		close(held)
		synctest.Wait()
		leave()
		close(block)
		synctest.Wait()
		if parked == 0 || parked >= n {
			r.Errorf("%d of %d tasks were parked at the first turn of the call, want some", parked, n)
		}
		if task := r.version(free); task.Lease != nil || task.Attempts > 0 {
			r.Errorf("the task has the lease %v and %d attempts, want none", task.Lease, task.Attempts)
		}
		if n := onLoop(r, func() int { return len(r.requests.byKey) }); n > 0 {
			r.Errorf("%d requests are in memory, want none", n)
		}
		ask := LeaseRequest{Wants: Wants{Space: home, Worker: "w", Queues: []string{"q"}}, Max: 1, Request: "r1"}
		if g := r.leaseAside(ask)(); len(g) != 1 || g[0].Task.ID != free {
			r.Errorf("the repeat gets tasks %s, want %d", sequencesOf(g), free.Seq)
		}
	})
}
