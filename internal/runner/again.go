package runner

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// RetryFailed opens the lines again that have failed for good or were cancelled, and returns how
// many it has opened. Call it before the worker begins, so that no line is opened that fails only
// then. left are the lines for which the tenant's quota of tasks has no room yet; Run opens them as
// tasks end.
func (j *Job) RetryFailed(
	ctx context.Context, tasks lessorv1.TaskServiceClient,
) (opened uint64, left int64, err error) {
	req := &lessorv1.BatchRetryTasksRequest{Filter: j.failed()}
	j.before.failed = 0 // they will not have ended any more when Run begins to print
	for {
		var answer *lessorv1.BatchRetryTasksResponse
		noRoom, err := callForRoom(ctx, func() (err error) { // a repeat opens the rest
			answer, err = tasks.BatchRetryTasks(ctx, req)
			return err
		})
		if err != nil {
			return opened, 0, err
		}
		if noRoom { // the call has opened those for which there was room
			left, err = j.markFailed(ctx, tasks)
			return opened, left, err
		}
		opened += answer.GetResult().GetChanged()
		if req.PageToken = answer.GetResult().GetNextPageToken(); req.PageToken == "" {
			return opened, 0, nil
		}
	}
}

// failed selects the lines that have failed for good or were cancelled. What else has the id of the
// run, because a command has submitted it, is in another queue.
func (j *Job) failed() *lessorv1.TaskFilter {
	filter := j.manifest.filter(lessorv1.TaskState_TASK_STATE_FAILED, lessorv1.TaskState_TASK_STATE_CANCELLED)
	filter.Queue = j.RunID()
	return filter
}

// markFailed marks the failed lines as those that RetryFailed has left, and returns how many they
// are.
func (j *Job) markFailed(ctx context.Context, tasks lessorv1.TaskServiceClient) (lines int64, err error) {
	j.left = newMarks(j.Lines())
	err = eachTask(ctx, tasks, j.failed(), func(task *lessorv1.Task) error {
		j.left.mark(LineOf(task))
		return nil
	})
	return j.left.count, err
}

// retryLeft opens the lines that RetryFailed has left, one by one: each only once, although those
// that were opened before may have failed again.
func (j *Job) retryLeft(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	if j.left == nil {
		return nil
	}
	return eachTask(ctx, tasks, j.failed(), func(task *lessorv1.Task) error {
		if !j.left.has(LineOf(task)) {
			return nil
		}
		return retryOnceThereIsRoom(ctx, tasks, task.GetTaskId())
	})
}

// retryOnceThereIsRoom opens a task again, when the tenant's quota of tasks has room for it.
func retryOnceThereIsRoom(ctx context.Context, tasks lessorv1.TaskServiceClient, taskID string) error {
	for {
		noRoom, err := callForRoom(ctx, func() error {
			_, err := tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: taskID})
			return err
		})
		switch status.Code(err) {
		case codes.NotFound, codes.FailedPrecondition:
			// it is deleted; or it is open, because somebody was faster or an answer was lost
			return nil
		}
		if err != nil || !noRoom {
			return err
		}
		if err := awaitRoom(ctx); err != nil {
			return err
		}
	}
}
