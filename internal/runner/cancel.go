package runner

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// cancelReason is told to workers, and shown with the tasks.
const cancelReason = "the run was abandoned"

// Cancel cancels every task of the run that has not ended. It is for a run that nobody will resume.
func (j *Job) Cancel(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	return j.manifest.cancel(ctx, tasks)
}

// CancelReplaced does the same to the run that this one replaced by force, if that run was on the same coordinator.
func (j *Job) CancelReplaced(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	if j.replaced == nil || j.replaced.Options.Addr != j.manifest.Options.Addr {
		return nil
	}
	return j.replaced.cancel(ctx, tasks)
}

func (m *manifest) cancel(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	return eachTask(ctx, tasks, m.filter(openStates...), func(task *lessorv1.Task) error {
		_, err := tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: task.GetTaskId(), Reason: cancelReason})
		switch status.Code(err) {
		case codes.NotFound, codes.FailedPrecondition: // gone, or ended meanwhile
			return nil
		}
		return err
	})
}

// openStates are those of tasks that have not ended.
var openStates = []lessorv1.TaskState{
	lessorv1.TaskState_TASK_STATE_SCHEDULED, lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_LEASED,
	lessorv1.TaskState_TASK_STATE_RUNNING, lessorv1.TaskState_TASK_STATE_CANCELLING,
}
