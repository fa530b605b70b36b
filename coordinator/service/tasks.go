package service

import (
	"context"
	"fmt"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// taskService serves producers and operators.
type taskService struct {
	lessorv1.UnimplementedTaskServiceServer
	*shared
}

// SubmitTask submits a task.
func (s *taskService) SubmitTask(
	ctx context.Context, req *lessorv1.SubmitTaskRequest,
) (*lessorv1.SubmitTaskResponse, error) {
	f := s.fields()
	logRequestID(ctx, f, req.GetRequestId())
	if req.GetTask() == nil {
		f.Fail("task", "is missing")
	}
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	done, err := s.submit(ctx, []*lessorv1.TaskSpec{req.GetTask()}, func(int) string { return "task" })
	if err != nil {
		return nil, refusal.Status(err)
	}
	logFields(ctx, "id", done[0].Task.ID.String())
	m, err := s.answer(done[0].Task)
	return &lessorv1.SubmitTaskResponse{Task: m, Created: done[0].Created}, err
}

// maxMessage is how many bytes of the message of an error are in the answer to a submit or a
// change.
const maxMessage = 1 << 10

// answer returns a task for the answer to a submit or a change: as it is listed, but of its error
// only the beginning, because the number of such answers that wait for a client to read them has no
// bound of its own (package sendlimit).
func (s *taskService) answer(t *lease.Task) (*lessorv1.Task, error) {
	m := convert.TaskProto(s.Engine.Now(), t)
	if !t.HasFailure() {
		return m, nil
	}
	if err := s.view(func(r store.Reader) error { return addError(m, r, t) }); err != nil {
		return nil, refusal.Status(err)
	}
	if m.Error != nil {
		m.Error.Message, m.Error.StackTrace = lease.Clip(m.Error.Message, maxMessage), ""
	}
	return m, nil
}

// BatchSubmitTasks submits many tasks in one commit, all or none.
func (s *taskService) BatchSubmitTasks(
	ctx context.Context, req *lessorv1.BatchSubmitTasksRequest,
) (*lessorv1.BatchSubmitTasksResponse, error) {
	f := s.fields()
	logRequestID(ctx, f, req.GetRequestId())
	if len(req.GetTasks()) == 0 {
		f.Fail("tasks", "must not be empty")
	}
	f.Count("tasks", len(req.GetTasks()), s.Limits.Batch)
	if f.Err != nil {
		return nil, refusal.Status(f.Err)
	}
	done, err := s.submit(ctx, req.GetTasks(), func(i int) string { return fmt.Sprintf("tasks[%d]", i) })
	if err != nil {
		return nil, refusal.Status(s.ifTooMany(gate.Identify(ctx).Tenant, req.GetTasks(), err))
	}
	results := make([]*lessorv1.SubmitResult, len(done))
	for i, d := range done {
		results[i] = &lessorv1.SubmitResult{
			TaskId: d.Task.ID.String(), Created: d.Created,
			State: lessorv1.TaskState(d.Task.State()),
		}
	}
	return &lessorv1.BatchSubmitTasksResponse{Results: results}, nil
}

func (s *taskService) submit(
	ctx context.Context, sent []*lessorv1.TaskSpec, path func(int) string,
) ([]lease.Submitted, error) {
	sub, err := convert.ParseSubmit(sent, path, s.Limits)
	if err != nil {
		return nil, err
	}
	who := gate.Identify(ctx)
	if err := s.Quotas.Spend(who.Caller(), quota.Submits, len(sub.Specs)); err != nil {
		return nil, err
	}
	spans := s.submitSpans(ctx, len(sub.Specs))
	for _, spec := range sub.Specs {
		spans.begin(spec)
	}
	space := engine.Space{Tenant: who.Tenant, Workspace: sub.Workspace}
	done, at, err := s.Engine.Submit(ctx, space, sub.Specs, sub.Digests)
	for i := range sub.Specs {
		if err != nil {
			spans.end(i, nil, err)
		} else {
			spans.end(i, done[i].Task, nil)
		}
	}
	if err != nil {
		s.refundSubmits(who, err, len(sub.Specs))
		return nil, convert.Under(path(at), s.ifTaskLimit(who, err))
	}
	return done, nil
}

// logRequestID checks a request_id and adds it to the log line of the call. It has no other use.
func logRequestID(ctx context.Context, f *convert.Fields, requestID string) {
	if f.ID("request_id", requestID); f.Err == nil && requestID != "" {
		logFields(ctx, "corr", requestID)
	}
}

// GetTask returns a task with all its details.
func (s *taskService) GetTask(ctx context.Context, req *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	id, err := parseTaskID(ctx, s.fields(), req.GetTaskId())
	if err != nil {
		return nil, refusal.Status(err)
	}
	var m *lessorv1.Task
	err = s.view(func(r store.Reader) error {
		t, err := readTask(r, gate.Identify(ctx).Tenant, id)
		if err != nil {
			return err
		}
		m = convert.TaskProto(s.Engine.Now(), t)
		return addDetails(m, r, t)
	})
	if err != nil {
		return nil, refusal.Status(err)
	}
	s.addLiveFeedback(m, id)
	return &lessorv1.GetTaskResponse{Task: m}, nil
}

// parseTaskID reads the task id of a request. The caller has read the other fields with f;
// parseTaskID returns their error too. An id that this coordinator cannot have made gives
// lease.ErrNotFound.
func parseTaskID(ctx context.Context, f *convert.Fields, sent string) (lease.TaskID, error) {
	id, known := f.TaskID(sent)
	switch {
	case f.Err != nil:
		return id, f.Err
	case !known:
		return id, lease.ErrNotFound
	}
	logFields(ctx, "id", sent)
	return id, nil
}

// CancelTask cancels a task; if a worker holds it, the worker is asked to stop.
func (s *taskService) CancelTask(
	ctx context.Context, req *lessorv1.CancelTaskRequest,
) (*lessorv1.CancelTaskResponse, error) {
	f := s.fields()
	logRequestID(ctx, f, req.GetRequestId())
	reason := f.Text("reason", req.GetReason(), convert.MaxReason)
	id, err := parseTaskID(ctx, f, req.GetTaskId())
	if err != nil {
		return nil, refusal.Status(err)
	}
	who := gate.Identify(ctx)
	t, err := s.Engine.Cancel(ctx, lease.Cancel{Tenant: who.Tenant, Task: id, Reason: reason, By: who.Subject})
	if err != nil {
		return nil, refusal.Status(err)
	}
	m, err := s.answer(t)
	return &lessorv1.CancelTaskResponse{Task: m}, err
}

// RetryTask opens a new round of attempts for a task.
func (s *taskService) RetryTask(
	ctx context.Context, req *lessorv1.RetryTaskRequest,
) (*lessorv1.RetryTaskResponse, error) {
	f := s.fields()
	logRequestID(ctx, f, req.GetRequestId())
	deadline := f.Wall("deadline", req.GetDeadline())
	id, err := parseTaskID(ctx, f, req.GetTaskId())
	if err != nil {
		return nil, refusal.Status(err)
	}
	who := gate.Identify(ctx)
	t, err := s.Engine.Retry(ctx, lease.Retry{Tenant: who.Tenant, Task: id, Deadline: deadline, By: who.Subject})
	if err != nil {
		return nil, refusal.Status(s.ifTaskLimit(who, err))
	}
	m, err := s.answer(t)
	return &lessorv1.RetryTaskResponse{Task: m}, err
}

// DeleteTask removes a task.
func (s *taskService) DeleteTask(
	ctx context.Context, req *lessorv1.DeleteTaskRequest,
) (*lessorv1.DeleteTaskResponse, error) {
	f := s.fields()
	logRequestID(ctx, f, req.GetRequestId())
	id, err := parseTaskID(ctx, f, req.GetTaskId())
	if err != nil {
		return nil, refusal.Status(err)
	}
	if err := s.Engine.Delete(ctx, lease.Delete{Tenant: gate.Identify(ctx).Tenant, Task: id, Force: req.GetForce()}); err != nil {
		return nil, refusal.Status(err)
	}
	return &lessorv1.DeleteTaskResponse{}, nil
}

// AdoptResult makes a discarded result the outcome of its task.
func (s *taskService) AdoptResult(
	ctx context.Context, req *lessorv1.AdoptResultRequest,
) (*lessorv1.AdoptResultResponse, error) {
	f := s.fields()
	logRequestID(ctx, f, req.GetRequestId())
	id, err := parseTaskID(ctx, f, req.GetTaskId())
	if err != nil {
		return nil, refusal.Status(err)
	}
	who := gate.Identify(ctx)
	t, err := s.Engine.Adopt(ctx, lease.Adopt{Tenant: who.Tenant, Task: id, Attempt: req.GetAttempt(), By: who.Subject})
	if err != nil {
		return nil, refusal.Status(err)
	}
	m, err := s.answer(t)
	return &lessorv1.AdoptResultResponse{Task: m}, err
}
