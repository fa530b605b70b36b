package limits

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/verify"
)

// endWithin is the time within which all tasks must end, which is longer than any wait that occurs.
const endWithin = 20 * time.Minute

// end ends the faults: all must be answered and all tasks must end; then all are deleted, and
// nothing of them may be left.
func (w *world) end() {
	w.note("the faults end")
	w.calm.Store(true)
	w.full.Store(false)
	w.st.SetHook(nil)
	w.leaveSDK()
	w.quiet.Store(true)
	w.replaceWorkers()
	w.eachPlace(w.heal)
	time.Sleep(2 * time.Second)
	w.eachPlace(w.checkWaiting)
	w.quiet.Store(false)
	w.drain()
	w.eachPlace(func(tn *tenant, space string) { w.checkTasks(tn, space) })
	for _, tn := range w.everybody() {
		for _, p := range tn.peers {
			p.leave(p.line, 0, 0)
		}
	}
	w.busy.Wait()
	time.Sleep(time.Second) // the coordinator has noticed that they are gone
	w.checkOwnFlood()
	w.recall()
	w.eachPlace(w.deleteAll)
	w.recall()
	for _, tn := range w.everybody() {
		w.checkStatus(tn)
	}
	time.Sleep(lease.LedgerAfterDelete + time.Minute)
	l := w.now.Load()
	w.shutDown(false)
	w.checkMemory(l.Coordinator)
	w.checkStore()
	if log := w.log.String(); log != "" {
		w.Errorf("the log has errors:\n%s", log)
	}
}

func (w *world) everybody() []*tenant { return append(slices.Clone(w.tenants), w.modest) }

// eachPlace calls do with each workspace of each tenant.
func (w *world) eachPlace(do func(tn *tenant, space string)) {
	for _, tn := range w.everybody() {
		for _, space := range tn.spaces {
			do(tn, space)
		}
	}
}

// insist makes a call until it is not refused by a quota.
func (w *world) insist(tn *tenant, what string, call func(ctx context.Context, c *client) error) {
	for range 200 {
		err := w.call(tn, what, 0, call)
		if code := status.Code(err); code != codes.ResourceExhausted {
			if code != codes.OK && code != codes.NotFound {
				w.problem("%s: %s: %v", tn.name, what, err)
			}
			return
		}
		time.Sleep(time.Second)
	}
	w.problem("%s: %s is refused again and again", tn.name, what)
}

// replaceWorkers cuts all streams and sends each workspace a worker that takes everything. It comes
// before heal, so that each change that lets a task go must wake it.
func (w *world) replaceWorkers() {
	for _, tn := range w.everybody() {
		for _, p := range tn.peers {
			p.retire()
		}
		tn.peers = nil
	}
	time.Sleep(time.Minute) // lost sessions are forgotten, and leave their place in the quota
	w.eachPlace(func(tn *tenant, space string) {
		p := newPeer(w, tn, "generous in "+space)
		tn.peers = append(tn.peers, p)
		p.generous(space)
	})
}

// heal ends all pauses of the queues of a workspace, and in half of the histories takes back what
// else holds them up: they drain in any case.
func (w *world) heal(tn *tenant, space string) {
	for _, q := range queues {
		if _, ruled := tn.ruled.Load(queueOf{space, q}); !ruled {
			continue
		}
		req := &lessorv1.UpdateQueueRequest{WorkspaceId: space, Name: q, Paused: new(bool)}
		if w.seed%2 == 0 {
			req.MaxInflight, req.RateLimit = new(uint32), &lessorv1.RateLimit{}
		}
		w.insist(tn, "UpdateQueue", func(ctx context.Context, c *client) error {
			return w.updateQueue(ctx, tn, c, req)
		})
	}
}

// checkWaiting checks that no task of a workspace waits for nothing: its worker has room for all of
// them, and nothing has happened for a while.
func (w *world) checkWaiting(tn *tenant, space string) {
	req := &lessorv1.ListTasksRequest{
		Filter: &lessorv1.TaskFilter{
			WorkspaceId: space,
			States:      []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_READY},
		}, PageSize: 5,
	}
	var res *lessorv1.ListTasksResponse
	w.insist(tn, "ListTasks", func(ctx context.Context, c *client) (err error) {
		res, err = c.tasks.ListTasks(ctx, req)
		return err
	})
	for _, t := range res.GetTasks() {
		x := w.waitsForNothing(tn, t.GetTaskId())
		// with a small maxUnacked, until the next heartbeat (W5)
		if x != nil && x.GetFindings()[0].GetCode() == lessorv1.FindingCode_FINDING_CODE_WORKERS_BUSY {
			time.Sleep(beatEvery + time.Second)
			x = w.waitsForNothing(tn, t.GetTaskId())
		}
		if x != nil {
			w.problem("%s: %s waits although a worker has room for it: %v", tn.name, t.GetTaskId(), x)
		}
	}
}

// waitsForNothing returns what the coordinator says of a task that waits neither for its key, nor
// for its queue, nor for a worker that it names; nil: it waits for one of them, or does not wait.
func (w *world) waitsForNothing(tn *tenant, id string) (x *lessorv1.ExplainTaskResponse) {
	w.insist(tn, "ExplainTask", func(ctx context.Context, c *client) (err error) {
		x, err = c.tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})
		return err
	})
	if x.GetState() != lessorv1.TaskState_TASK_STATE_READY {
		return nil
	}
	switch x.GetFindings()[0].GetCode() {
	case lessorv1.FindingCode_FINDING_CODE_CONCURRENCY_KEY, lessorv1.FindingCode_FINDING_CODE_MAX_INFLIGHT, lessorv1.FindingCode_FINDING_CODE_RATE_LIMIT,
		lessorv1.FindingCode_FINDING_CODE_PINNED_WORKER, lessorv1.FindingCode_FINDING_CODE_AFFINITY:
		return nil
	}
	return x
}

// drain waits until all tasks have ended.
func (w *world) drain() {
	began := time.Now()
	for time.Since(began) < endWithin {
		if w.eachPlaceEnded() {
			w.note("all tasks have ended after %v", time.Since(began))
			return
		}
		time.Sleep(5 * time.Second)
	}
	w.eachPlace(w.explain)
}

// eachPlaceEnded reports whether all tasks have ended.
func (w *world) eachPlaceEnded() bool {
	left := 0
	w.eachPlace(func(tn *tenant, space string) {
		if left == 0 {
			left = len(w.unended(tn, space))
		}
	})
	return left == 0
}

// unended returns tasks of a workspace that have not ended.
func (w *world) unended(tn *tenant, space string) (ids []string) {
	req := &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{WorkspaceId: space, States: []lessorv1.TaskState{
		lessorv1.TaskState_TASK_STATE_SCHEDULED, lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_LEASED,
		lessorv1.TaskState_TASK_STATE_RUNNING, lessorv1.TaskState_TASK_STATE_CANCELLING,
	}}}
	for first := true; len(ids) == 0 && (first || req.GetPageToken() != ""); first = false {
		w.insist(tn, "ListTasks", func(ctx context.Context, c *client) error {
			res, err := c.tasks.ListTasks(ctx, req)
			if err != nil {
				return err
			}
			for _, t := range res.GetTasks() {
				ids = append(ids, t.GetTaskId())
			}
			req.PageToken = res.GetNextPageToken()
			return nil
		})
	}
	return ids
}

// explain fails the test with what the coordinator says of each task that has not ended.
func (w *world) explain(tn *tenant, space string) {
	for _, id := range w.unended(tn, space) {
		w.insist(tn, "ExplainTask", func(ctx context.Context, c *client) error {
			res, err := c.tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})
			if err == nil {
				w.Errorf("%s: %s has not ended within %v: %v", tn.name, id, endWithin, res)
			}
			return err
		})
	}
}

// checkTasks compares all tasks of a workspace with what callers were told.
func (w *world) checkTasks(tn *tenant, space string) {
	var all []*lessorv1.Task
	for _, id := range w.listAll(tn, space, 100) {
		w.insist(tn, "GetTask", func(ctx context.Context, c *client) error {
			known := w.book.known(id)
			res, err := c.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})
			if status.Code(err) != codes.ResourceExhausted {
				w.book.read(known, id, res.GetTask(), err)
			}
			if err == nil {
				all = append(all, res.GetTask())
			}
			return err
		})
	}
	w.book.checkHistories(placeOf{tn, space}, all)
}

// deleteAll deletes all tasks of a workspace. Only queues on which something was set may be left,
// and they must be empty.
func (w *world) deleteAll(tn *tenant, space string) {
	defer w.book.deleting(tn, space, false)()
	for token, more := "", true; more; {
		w.insist(tn, "BatchDeleteTasks", func(ctx context.Context, c *client) error {
			res, err := c.tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{
				Filter: &lessorv1.TaskFilter{WorkspaceId: space}, All: true, PageToken: token,
			})
			if err == nil {
				token = res.GetResult().GetNextPageToken()
			}
			more = err == nil && token != "" || status.Code(err) == codes.ResourceExhausted
			return err
		})
	}
	w.insist(tn, "ListQueues", func(ctx context.Context, c *client) error {
		res, err := c.admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{WorkspaceId: space})
		for _, q := range res.GetQueues() {
			if _, ruled := tn.ruled.Load(queueOf{space, q.GetName()}); !ruled {
				w.problem("%s: nobody needs queue %s of %s any more, and it is there: %v", tn.name, q.GetName(), space, q)
			}
			if q.GetReady()+q.GetScheduled()+q.GetLeased()+q.GetBlocked() != 0 || q.GetTakers() != 0 {
				w.problem("%s: queue %s of %s is not empty: %v", tn.name, q.GetName(), space, q)
			}
		}
		return err
	})
}

// checkStatus checks that nothing of a tenant counts any more.
func (w *world) checkStatus(tn *tenant) {
	w.insist(tn, "GetStatus", func(ctx context.Context, c *client) error {
		res, err := c.admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
		if res.GetLeases() != 0 || res.GetSessions() != 0 {
			w.problem("%s has %d leases and %d sessions left", tn.name, res.GetLeases(), res.GetSessions())
		}
		for _, q := range res.GetQuotas() {
			if q.GetUsed() != 0 && q.GetLimit() != "calls" && q.GetLimit() != "submits" && q.GetLimit() != "frames" {
				w.problem("%s uses some of a quota: %v", tn.name, q)
			}
		}
		return err
	})
}

// checkStore checks the records, as `lessor verify` does.
func (w *world) checkStore() {
	err := w.st.View(func(r store.Reader) error {
		_, err := verify.Store(r, func(f verify.Finding) { w.Errorf("%v %x: %s", f.Keyspace, f.Key, f.Problem) })
		return err
	})
	if err != nil {
		w.Error(err)
	}
}
