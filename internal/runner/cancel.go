package runner

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// cancelReason is the reason of the cancel. Workers get it, and the tasks show it.
const cancelReason = "the run was abandoned"

// Cancel cancels every task of the run that has not ended. It is for a run that nobody will resume.
func (j *Job) Cancel(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	return j.manifest.cancel(ctx, tasks)
}

// CancelReplaced cancels the tasks of the run that this run replaced by force, if that run used the
// same coordinator.
func (j *Job) CancelReplaced(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	if j.replaced == nil || j.replaced.Options.Addr != j.manifest.Options.Addr {
		return nil
	}
	return j.replaced.cancel(ctx, tasks)
}

func (m *manifest) cancel(ctx context.Context, tasks lessorv1.TaskServiceClient) error {
	return eachTask(ctx, tasks, m.filter(words.Open()...), func(task *lessorv1.Task) error {
		_, err := tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: task.GetTaskId(), Reason: cancelReason})
		switch status.Code(err) {
		case codes.NotFound, codes.FailedPrecondition: // the task is deleted, or has ended in the meantime
			return nil
		}
		return err
	})
}
