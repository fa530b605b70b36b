package limits

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
)

// asksForLittle is a tenant that has one task at a time. It never waits for more than one turn of
// each other tenant, whatever they do.
func (w *world) asksForLittle() {
	for n := 0; !w.calm.Load(); n++ {
		w.runOne()
		time.Sleep(time.Second)
	}
}

// turns returns the longest time for which the tenant may wait: before its operation there may be
// those that the loop has taken already, and one of each other tenant, and each of them may fill a
// batch. As many turns may go before its queue has its turn. Then come the commit under way, and
// its own.
func (w *world) turns() time.Duration {
	return time.Duration(takeAtOnce+2*len(w.tenants)+3) * w.commits
}

// runOne submits a task, takes it, renews its lease and completes it.
func (w *world) runOne() {
	var got []*lessorv1.Assignment
	var submitted, granted time.Time
	leased, starts := make(chan error, 1), w.starts.Load()
	w.busy.Go(func() {
		leased <- w.call(w.modest, "Lease", 30*time.Second, func(ctx context.Context, c *client) error {
			res, err := c.workers.Lease(ctx,
				&lessorv1.LeaseRequest{WorkerId: "w", Queues: queues, Wait: durationpb.New(30 * time.Second)})
			got, granted = res.GetAssignments(), time.Now()
			return err
		})
	})
	time.Sleep(time.Second)
	ok := w.inTurn("SubmitTask", func(ctx context.Context, c *client) error {
		spec := &lessorv1.TaskSpec{WorkspaceId: "default", Queue: "a", HeartbeatTimeout: durationpb.New(10 * time.Second)}
		began := time.Now()
		res, err := c.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
		if submitted = time.Now(); err == nil {
			w.book.submitted(w.modest, spec, res.GetTask().GetTaskId(), res.GetCreated(), began)
		}
		return err
	})
	if err := <-leased; !ok || err != nil || starts != w.starts.Load() {
		return
	}
	if len(got) == 0 {
		w.problem("T12: the task of the modest tenant was not granted within 29 s")
		return
	}
	if took := granted.Sub(submitted); took > w.turns() && !w.stalls {
		w.problem("T12: the task of the modest tenant was granted after %v; its turn comes within %v", took, w.turns())
	}
	l := w.handed(w.modest, got[0], nil)
	for range 2 {
		w.inTurn("Heartbeat", func(context.Context, *client) error {
			unary{w, "w"}.beat(l, nil)
			return nil
		})
		time.Sleep(time.Second)
	}
	w.finish(l, unary{w, "w"}, "complete")
}

// inTurn makes a call, which must be answered when the turn of the tenant comes. ok is false if the
// call fails.
func (w *world) inTurn(what string, call func(ctx context.Context, c *client) error) (ok bool) {
	began, starts := time.Now(), w.starts.Load()
	err := w.call(w.modest, what, 0, call)
	if took := time.Since(began); took > w.turns() && !w.stalls && starts == w.starts.Load() && w.now.Load() != nil {
		w.problem("T12: %s of the modest tenant took %v; its turn comes within %v", what, took, w.turns())
	}
	return err == nil
}

// checkOwnFlood lets the tenant submit far more than a commit takes, while nobody else does
// anything. Its heartbeat waits for the two commits under way, for the batch that is full, for what
// the loop has taken already, for one submit, and for its own commit.
func (w *world) checkOwnFlood() {
	const submits, each = 40, 12
	if maxWaiting < submits {
		return // not enough of them wait
	}
	l := w.leaseOne()
	if l == nil {
		return
	}
	commits := 20 * time.Millisecond
	w.st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		time.Sleep(commits)
		apply()
		return nil
	})
	spec := &lessorv1.TaskSpec{WorkspaceId: "default", Queue: "b"}
	for range submits {
		w.ask(w.modest, "BatchSubmitTasks", 0, func(ctx context.Context, c *client) error {
			_, err := c.tasks.BatchSubmitTasks(ctx,
				&lessorv1.BatchSubmitTasksRequest{Tasks: slices.Repeat([]*lessorv1.TaskSpec{spec}, each)})
			return err
		})
	}
	time.Sleep(commits / 2)
	began, turns := time.Now(), time.Duration(takeAtOnce+10)*commits
	unary{w, "w"}.beat(l, nil)
	if took := time.Since(began); took > turns {
		w.problem("T12: a heartbeat waited %v for submits of its own tenant; its turn comes within %v", took, turns)
	}
	w.busy.Wait()
	w.st.SetHook(nil)
	w.finish(l, unary{w, "w"}, "complete")
}

// leaseOne submits a task and takes it; nil: that failed.
func (w *world) leaseOne() (l *held) {
	spec := &lessorv1.TaskSpec{WorkspaceId: "default", Queue: "a"}
	w.insist(w.modest, "SubmitTask", func(ctx context.Context, c *client) error {
		began := time.Now()
		res, err := c.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: spec})
		if err == nil {
			w.book.submitted(w.modest, spec, res.GetTask().GetTaskId(), res.GetCreated(), began)
		}
		return err
	})
	w.insist(w.modest, "Lease", func(ctx context.Context, c *client) error {
		res, err := c.workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: queues})
		for _, a := range res.GetAssignments() {
			l = w.handed(w.modest, a, nil)
		}
		return err
	})
	if l == nil {
		w.problem("a task of the modest tenant was not granted, although nobody else wanted anything")
	}
	return l
}
