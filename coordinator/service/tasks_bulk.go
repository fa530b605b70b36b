package service

import (
	"context"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// The bulk verbs of TaskService (T9). The filter selects each task by its newest version. The
// command that changes the task is the same as that of the verb for a single task.

// BatchCancelTasks cancels the tasks that a filter selects.
func (s *taskService) BatchCancelTasks(
	ctx context.Context, req *lessorv1.BatchCancelTasksRequest,
) (*lessorv1.BatchCancelTasksResponse, error) {
	f := s.fields()
	reason := f.Text("reason", req.GetReason(), convert.MaxReason)
	who := gate.Identify(ctx)
	result, err := s.bulk(ctx, f, "cancel", req, func(t *lease.Task) lease.Command {
		if t.Rest.Final() || t.Cancel != nil { // a Cancel would change nothing
			return nil
		}
		return lease.Cancel{Tenant: who.Tenant, Task: t.ID, Reason: reason, By: who.Subject}
	})
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.BatchCancelTasksResponse{Result: result}, nil
}

// BatchRetryTasks opens new rounds of the tasks that a filter selects.
func (s *taskService) BatchRetryTasks(
	ctx context.Context, req *lessorv1.BatchRetryTasksRequest,
) (*lessorv1.BatchRetryTasksResponse, error) {
	f := s.fields()
	deadline := f.Wall("deadline", req.GetDeadline())
	if deadline != 0 && deadline <= s.Engine.Now().Wall {
		f.Fail("deadline", "%s has passed", deadline.Time().Format(time.RFC3339))
	}
	who := gate.Identify(ctx)
	result, err := s.bulk(ctx, f, "retry", req, func(t *lease.Task) lease.Command {
		return lease.Retry{Tenant: who.Tenant, Task: t.ID, Deadline: deadline, By: who.Subject}
	})
	if err != nil {
		return nil, refusal.Status(s.ifTaskLimit(who, err))
	}
	return &lessorv1.BatchRetryTasksResponse{Result: result}, nil
}

// BatchDeleteTasks removes the tasks that a filter selects.
func (s *taskService) BatchDeleteTasks(
	ctx context.Context, req *lessorv1.BatchDeleteTasksRequest,
) (*lessorv1.BatchDeleteTasksResponse, error) {
	tenant := gate.Identify(ctx).Tenant
	result, err := s.bulk(ctx, s.fields(), "delete", req, func(t *lease.Task) lease.Command {
		return lease.Delete{Tenant: tenant, Task: t.ID, Force: req.GetForce()}
	})
	if err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.BatchDeleteTasksResponse{Result: result}, nil
}

// bulkRequest has the fields that all requests of the bulk verbs share.
type bulkRequest interface {
	GetFilter() *lessorv1.TaskFilter
	GetAll() bool
	GetPageToken() string
	GetRequestId() string
}

// bulk runs a command on each task that a request selects. If command returns nil, bulk skips the
// task. The caller has read the other fields with f; bulk returns their error too.
func (s *taskService) bulk(
	ctx context.Context, f *convert.Fields, verb string, req bulkRequest, command func(*lease.Task) lease.Command,
) (*lessorv1.BatchResult, error) {
	logRequestID(ctx, f, req.GetRequestId())
	want := convert.ParseFilter(f, req.GetFilter())
	if !want.Selects() && !req.GetAll() {
		f.Fail("filter", "has no condition and would select every task of the workspace; set all to do that")
	}
	tenant := gate.Identify(ctx).Tenant
	list := newListing(verb, tenant, want.Sent)
	sw := engine.Sweep{
		Space: engine.Space{Tenant: tenant, Workspace: want.Workspace}, Run: want.Run,
		Key: want.IdempotencyKey, Matches: want.MayMatch,
	}
	sw.After, sw.Until, _ = list.pair(f, req.GetPageToken())
	if f.Err != nil {
		return nil, f.Err
	}
	sw.Choose = func(t *lease.Task) (lease.Command, bool) {
		if !want.Matches(t) {
			return nil, false
		}
		c := command(t)
		return c, c == nil
	}
	return s.sweep(ctx, list, sw)
}
