package matrix

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// environment is what every host begins with: a store in which two tenants have the same kinds of
// objects, and the credentials.
type environment struct {
	store   []byte // a snapshot of the store
	parties map[string]names
	tokens  map[string]string // good and bad ones, by the names of credentials_test.go
	secrets []string          // what no log may have
}

// Marks in payloads, outputs and checkpoints. No log may have them.
const (
	payloadMark    = "payload-mark"
	outputMark     = "output-mark"
	checkpointMark = "checkpoint-mark"
)

// openingDelay is the time after which each host starts, in fake time, so that all start at the
// same instant, long after the environment was made.
const openingDelay = time.Hour

// newEnvironment fills a store through the API.
func newEnvironment(t *testing.T) *environment {
	t.Helper()
	e := &environment{
		parties: map[string]names{acme: namesOf(acme), evil: namesOf(evil), void: namesOfNobody(void), nemo: namesOfNobody(nemo)},
		tokens:  map[string]string{}, secrets: []string{payloadMark, outputMark, checkpointMark},
	}
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		e.retire(t, st)
		e.issueAll(t, st)
		h := e.openOver(t, st)
		defer h.close()
		e.revoke(t, h, "revoked", func(context.Context) {})
		for _, tenant := range []string{acme, evil} {
			e.populate(t, h, tenant)
		}
		e.revoke(t, h, "revoked of a worker", func(ctx context.Context) {
			held := &lessorv1.HeartbeatRequest{TaskId: e.parties[acme]["task"], LeaseId: e.parties[acme]["lease"]}
			e.tokens["revoked task"] = must(h.workers.Heartbeat(ctx, held))(t).GetTaskToken()
		})
		time.Sleep(tasktoken.Margin + time.Minute) // until the first task tokens have expired
		var snapshot bytes.Buffer
		must(st.Snapshot(&snapshot))(t)
		e.store = snapshot.Bytes()
		// What is issued from now on is not in the store of any host.
		e.issue(t, e.storeCopy(t), "unknown", auth.Request{Tenant: acme, Role: auth.Operator, Subject: acme + "-bad"})
	})
	for _, token := range e.tokens {
		e.secrets = append(e.secrets, secretsOf(token)...)
	}
	return e
}

// storeCopy returns a new store with the content of the environment.
func (e *environment) storeCopy(t *testing.T) *memstore.Store {
	t.Helper()
	return must(memstore.Restore(bytes.NewReader(e.store)))(t)
}

// must returns the result of a call, and fails the test if there was an error.
func must[M any](m M, err error) func(*testing.T) M {
	return func(t *testing.T) M {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

// spec returns a task with all names of a tenant, except for the idempotency key, with which the
// submit would return an existing task.
func spec(n names) *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: n["queue"], Type: n["type"], Payload: []byte(payloadMark), RunId: n["run"], TaskKey: n["node"],
		AssetId: n["asset"],
		Labels:  map[string]string{"label": n["label"]}, ConcurrencyKey: n["concurrency"], ConcurrencyLimit: 100,
		FairnessKey:       n["fairness"],
		HeartbeatInterval: durationpb.New(time.Hour), HeartbeatTimeout: durationpb.New(24 * time.Hour),
		TraceMeta: &lessorv1.TraceMeta{HostNodeId: n["host"]},
	}
}

// pinnedSpec is like spec, for a task that is pinned to the worker with its resource and has an
// affinity key.
func pinnedSpec(n names) *lessorv1.TaskSpec {
	s := spec(n)
	s.ResourceRefs = []*lessorv1.ResourceRef{{ResourceId: n["resource"], WorkerId: n["worker"]}}
	s.Affinity = &lessorv1.Affinity{Key: n["affinity"], Mode: lessorv1.AffinityMode_AFFINITY_MODE_STICKY}
	return s
}

// aside is a queue of each tenant from which no cell leases.
const aside = "aside"

// populate gives a tenant one object of each kind: tasks that wait, one that is leased, one that is
// cancelled, one with a late result.
func (e *environment) populate(t *testing.T, h *host, tenant string) {
	t.Helper()
	n, ctx := e.parties[tenant], h.as(e.tokens[tenant+" operator"])
	submit := func(change func(*lessorv1.TaskSpec)) string {
		s := spec(n)
		change(s)
		return must(h.tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: s}))(t).GetTask().GetTaskId()
	}
	lease := func(workspace, queue, request string) *lessorv1.Assignment {
		taken := must(h.workers.Lease(ctx, &lessorv1.LeaseRequest{
			WorkerId: n["worker"], WorkspaceId: workspace, Queues: []string{queue}, RequestId: request,
		}))(t)
		e.secrets = append(e.secrets, taken.GetAssignments()[0].GetLeaseId())
		return taken.GetAssignments()[0]
	}

	n["task/RetryTask"] = submit(func(s *lessorv1.TaskSpec) { s.Queue = aside })
	must(h.tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: n["task/RetryTask"]}))(t)
	n["task/POST /v1/tasks/{task_id}:retry"] = n["task/RetryTask"]

	n["task/AdoptResult"] = submit(func(s *lessorv1.TaskSpec) {
		s.Queue, s.HeartbeatInterval, s.HeartbeatTimeout = aside, durationpb.New(time.Second), durationpb.New(2*time.Second)
	})
	n["task/POST /v1/tasks/{task_id}:adopt"] = n["task/AdoptResult"]
	old := lease("", aside, "")
	time.Sleep(3 * time.Second)
	must(h.workers.Complete(ctx, &lessorv1.CompleteRequest{
		TaskId: n["task/AdoptResult"], LeaseId: old.GetLeaseId(), Output: []byte(outputMark),
	}))(t)

	n["task"] = submit(func(*lessorv1.TaskSpec) {})
	held := lease("", n["queue"], n["request"])
	n["lease"], n["attempt"] = held.GetLeaseId(), held.GetAttemptId()
	e.tokens[tenant+" task"], e.tokens["expired task"] = held.GetTaskToken(), old.GetTaskToken()
	must(h.workers.Heartbeat(ctx, &lessorv1.HeartbeatRequest{TaskId: n["task"], LeaseId: n["lease"], Checkpoint: []byte(checkpointMark)}))(t)

	for _, key := range []string{n["idempotency"] + "-1", n["idempotency"] + "-2", n["key"]} {
		submit(func(s *lessorv1.TaskSpec) { s.IdempotencyKey = key })
	}
	submit(func(s *lessorv1.TaskSpec) { s.IdempotencyKey = n["idempotency"] })
	whole := submit(func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.IdempotencyKey = n["workspace"], n["key"] })
	given := lease(n["workspace"], n["queue"], "") // a filter with all names finds it
	must(h.workers.Release(ctx, &lessorv1.ReleaseRequest{TaskId: whole, LeaseId: given.GetLeaseId()}))(t)
	n["sequence"] = early
	if tenant == evil {
		for range 10 {
			submit(func(s *lessorv1.TaskSpec) { s.Queue = aside })
		}
		n["sequence"] = late
	}
	e.pages(t, h, tenant)
}

// pages fills in a page token for each list.
func (e *environment) pages(t *testing.T, h *host, tenant string) {
	t.Helper()
	n, ctx := e.parties[tenant], h.as(e.tokens[tenant+" operator"])
	n["page"] = must(h.tasks.ListTasks(ctx, listTasks(n)))(t).GetNextPageToken()
	n["page/ListQueues"] = must(h.admin.ListQueues(ctx, &lessorv1.ListQueuesRequest{PageSize: 1}))(t).GetNextPageToken()
	n["page/ListAuditEvents"] = must(h.admin.ListAuditEvents(ctx,
		&lessorv1.ListAuditEventsRequest{PageSize: 1}))(t).GetNextPageToken()
	n["page/ListTokens"] = must(h.auth.ListTokens(ctx, &lessorv1.ListTokensRequest{PageSize: 1}))(t).GetNextPageToken()
	for k, v := range n {
		if v == "" {
			t.Fatalf("%s has no %s", tenant, k)
		}
	}
}

// listTasks asks for a page of one task, of those in the tenant's run.
func listTasks(n names) *lessorv1.ListTasksRequest {
	return &lessorv1.ListTasksRequest{Filter: &lessorv1.TaskFilter{RunId: n["run"]}, PageSize: 1}
}
