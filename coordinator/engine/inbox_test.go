package engine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/lessor-dev/lessor/lease"
)

// putter returns a function that puts an operation of a tenant into the inbox. The operation adds
// the tenant to ran, and calls also.
func (r *rig) putter(ran *[]string) func(tenant string, also func()) {
	return func(tenant string, also func()) {
		if err := r.inbox.put(tenant, op{run: func() { *ran = append(*ran, tenant); also() }}); err != nil {
			r.Error(err)
		}
	}
}

// T12: an operation waits for at most takeAtOnce operations that the loop has taken before, and
// then for one turn of each other tenant.
func TestOperationsThatTheLoopHasTakenAreFew(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		var ran []string
		put := r.putter(&ran)
		_ = r.inbox.put(home.Tenant, op{run: func() { // the loop stands still while the flood comes in
			put(home.Tenant, func() { put("other", func() {}) })
			for range 2 * maxBatchOps {
				put(home.Tenant, func() {})
			}
		}})
		synctest.Wait()
		if at := slices.Index(ran, "other"); at < 0 || at > takeAtOnce+1 {
			r.Errorf("the command of another tenant came after %d others, want at most %d", at, takeAtOnce+1)
		}
	})
}

// T12: what a tenant asks for may take the loop long and change nothing. Another tenant's call then
// waits for a few of these operations, not for all that the loop has taken, or that its round would
// still run.
func TestLongOperationsDelayOthersLittle(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		long := runFor / 2
		for range 2 * maxBatchOps {
			if err := r.inbox.put(home.Tenant, op{run: func() { time.Sleep(long) }}); err != nil {
				r.Fatal(err)
			}
		}
		for range 20 {
			began := time.Now()
			if err := r.inbox.await("other", op{settles: true, run: func() {}}); err != nil {
				r.Fatal(err)
			}
			if waited := time.Since(began); waited > 2*runFor+2*long {
				r.Errorf("the call of another tenant waited for %v", waited)
			}
		}
	})
}

// T12: the loop takes only one operation at a time out of the inbox while each of them takes long,
// even if each fills a batch, so that its round ends with it.
func TestLongOperationsThatFillABatchDelayOthersLittle(t *testing.T) {
	t.Attr("rules", "T12")
	run(t, func(r *rig) {
		var ran []string
		put := r.putter(&ran)
		fill := func() {
			r.batch().bytes = maxBatchBytes
			time.Sleep(2 * longOp)
		}
		const before = 20 // the loop has taken more each time, if it does not slow down
		for i := range 4 * before {
			put(home.Tenant, func() {
				if i == before {
					put("other", func() {})
				}
				fill()
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if at := slices.Index(ran, "other"); at < 0 || at > before+2 {
			r.Errorf("the command of another tenant came after %d others, want at most one turn after the %d that were before it", at, before+1)
		}
	})
}

// A round runs an operation however late the loop gets its processor: the token that has woken the
// loop is used up, and the next one may come much later.
func TestEveryRoundRunsAnOperation(t *testing.T) {
	defer func(d time.Duration) { runFor = d }(runFor)
	runFor = 0
	run(t, func(r *rig) {
		ran := 0
		for range 3 {
			if err := r.inbox.put(home.Tenant, op{run: func() { ran++ }}); err != nil {
				r.Fatal(err)
			}
		}
		if synctest.Wait(); ran != 3 {
			r.Errorf("%d operations have run, want 3", ran)
		}
	})
}

// T8, T12: a heartbeat does not wait behind the submits of its tenant, however many there are: its
// lease would expire. Neither do the submits wait behind all others. Submits keep their order among
// each other, and so do the others. Another tenant has its turns all the same.
func TestSubmitsDoNotDelayOtherOperations(t *testing.T) {
	t.Attr("rules", "T12")
	b := newInbox()
	var ran []string
	put := func(tenant, name string, submits int) {
		if err := b.put(tenant, op{submits: submits, run: func() { ran = append(ran, name) }}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"s1", "s2", "s3"} {
		put("a", name, 2)
	}
	for _, name := range []string{"h1", "h2", "h3", "h4", "h5"} {
		put("a", name, 0)
	}
	put("b", "b1", 0)
	put("b", "b2", 1)
	for _, o := range b.take(nil, 100) {
		o.run()
	}
	if want := []string{"s1", "b2", "h1", "b1", "h2", "s2", "h3", "h4", "s3", "h5"}; !slices.Equal(ran, want) {
		t.Errorf("the operations ran in the order %v, want %v", ran, want)
	}
	if len(b.tenants) != 0 || b.waiting() != 0 {
		t.Errorf("the empty inbox has %d tenants and %d operations, want none", len(b.tenants), b.waiting())
	}
}

// X5: while the loop stands still, callers may give up and repeat their calls. What they have sent
// is forgotten, and makes no tasks later.
func TestCallsThatWereGivenUpAreForgotten(t *testing.T) {
	t.Attr("rules", "X5")
	run(t, func(r *rig) {
		block := make(chan struct{})
		if err := r.inbox.put(home.Tenant, op{run: func() { <-block }}); err != nil {
			r.Fatal(err)
		}
		synctest.Wait()
		var sent []weak.Pointer[lease.Spec]
		for range 10 {
			ctx, cancel := context.WithCancel(r.Context())
			given := make(chan error)
			go func() {
				spec := work()
				sent = append(sent, weak.Make(spec))
				_, _, err := r.Submit(ctx, home, []*lease.Spec{spec}, make([]lease.Digest, 1))
				given <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-given; !errors.Is(err, context.Canceled) {
				r.Errorf("the call ended with %v, want %v", err, context.Canceled)
			}
		}
		synctest.Wait()
		runtime.GC()
		if i := slices.IndexFunc(sent, func(p weak.Pointer[lease.Spec]) bool { return p.Value() != nil }); i >= 0 {
			r.Errorf("task %d is in memory, although nobody waits for it", i)
		}
		close(block)
		synctest.Wait()
		if n, err := r.TenantCounts(r.Context(), home.Tenant); n.Unended() != 0 || err != nil {
			r.Errorf("%d tasks were made (%v), want none", n.Unended(), err)
		}
	})
}

// A8: a heartbeat that came in while the loop stood still renews its lease, also if its caller has
// not waited so long.
func TestHeartbeatThatWasGivenUpRenews(t *testing.T) {
	t.Attr("rules", "A8")
	run(t, func(r *rig) {
		const ttl = lease.DefaultHeartbeatTimeout
		r.submit(work())
		g := r.lease(1, 0)[0]
		r.want(r.say(lease.KindStart, g), lease.VerdictCommitted, lease.None)
		block := make(chan struct{})
		if err := r.inbox.put(home.Tenant, op{run: func() { <-block }}); err != nil {
			r.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		beat := &lease.Report{Kind: lease.KindHeartbeat, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID}
		if _, err := r.Judge(ctx, home.Tenant, []*lease.Report{beat}); !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("the heartbeat ended with %v, want %v", err, context.DeadlineExceeded)
		}
		time.Sleep(ttl + ttl/2)
		close(block)
		time.Sleep(3 * ttl / 4) // the stall alone extends the lease by one TTL
		r.want(r.say(lease.KindHeartbeat, g), lease.VerdictCommitted, lease.None)
	})
}
