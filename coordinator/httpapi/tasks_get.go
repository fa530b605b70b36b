package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// getRequest is the query of a get.
type getRequest struct {
	WaitMs millis `json:"waitMs"`
}

// longestWait is how long a get waits at most, like a request for work.
const longestWait millis = 60_000

// get answers GET /v1/tasks/{task_id}: at once, or with a wait when the task has ended or the time
// is over.
func (a *api) get(w http.ResponseWriter, r *http.Request) *problem {
	var m getRequest
	request := &lessorv1.GetTaskRequest{TaskId: r.PathValue("task_id")}
	p := a.query(w, r, &m)
	if p == nil && m.WaitMs < 0 {
		p = invalid("waitMs", "is %d; it cannot be negative", m.WaitMs)
	}
	if p != nil {
		return a.misread(r, lessorv1.TaskService_GetTask_FullMethodName, request, p)
	}
	var found *lessorv1.Task
	if m.WaitMs > 0 {
		hurry := patient(w)
		found, p = a.awaitEnd(r.Context(), request.GetTaskId(),
			time.Duration(min(m.WaitMs, longestWait))*time.Millisecond)
		hurry()
		if p != nil {
			return p
		}
	}
	if found == nil {
		shown, err := a.tasks.GetTask(r.Context(), request)
		if err != nil {
			return failed(err)
		}
		found = shown.GetTask()
	}
	writeJSON(w, http.StatusOK, taskResponse{Task: taskOf(found)})
	return nil
}

// awaitEnd waits until a task has ended, but not longer than wait, and returns it. It returns
// neither a task nor a problem where GetTask has the answer: if the time is over, if the task is
// too large for AwaitTasks, and if it is not there.
func (a *api) awaitEnd(ctx context.Context, id string, wait time.Duration) (*lessorv1.Task, *problem) {
	waiting, giveUp := context.WithCancel(ctx) // without a deadline, whose end would be a warning in the log
	defer giveUp()
	defer time.AfterFunc(wait, giveUp).Stop()
	told, err := a.awaitOne(waiting, id)
	switch refused := told.GetError(); {
	case refused.GetStatus() == int32(codes.ResourceExhausted):
		p := newProblem(kindTooMany, refused.GetCode(), refused.GetMessage())
		p.retryAfter(refused.GetRetryAfter())
		return nil, p
	case told != nil, err == nil:
		return told.GetTask(), nil
	case ctx.Err() == nil && waiting.Err() != nil, status.Code(err) == codes.InvalidArgument:
		return nil, nil
	}
	return nil, failed(err)
}

// awaitOne makes an AwaitTasks of one task and returns the answer about it. When it returns, the
// call has ended.
func (a *api) awaitOne(ctx context.Context, id string) (told *lessorv1.AwaitedTask, err error) {
	stream, err := a.tasks.AwaitTasks(ctx)
	if err == nil {
		err = stream.Send(&lessorv1.AwaitTasksRequest{Add: []string{id}})
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil {
		var answer *lessorv1.AwaitTasksResponse
		if answer, err = stream.Recv(); len(answer.GetTasks()) > 0 {
			told = answer.GetTasks()[0]
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return told, err
}
