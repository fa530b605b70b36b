package runner

import (
	"context"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// endedBefore is what earlier processes have done of a run.
type endedBefore struct {
	counts
	last time.Time // when the last of these lines ended, by the clock of the coordinator
}

// CountEnded counts the lines that ended while earlier processes worked on the run. Call it before
// RetryFailed and before the worker begins. Without it, the progress bar takes these lines for
// progress of this process.
func (j *Job) CountEnded(ctx context.Context, tasks lessorv1.TaskServiceClient) (done, failed int64, err error) {
	final := j.manifest.filter(lessorv1.TaskState_TASK_STATE_COMPLETED, lessorv1.TaskState_TASK_STATE_FAILED,
		lessorv1.TaskState_TASK_STATE_CANCELLED)
	seen := newMarks(j.Lines())
	j.before = endedBefore{}
	err = eachTask(ctx, tasks, final, func(task *lessorv1.Task) error {
		if seen.mark(LineOf(task)) {
			j.before.add(task)
			if at := task.GetFinishedAt().AsTime(); at.After(j.before.last) {
				j.before.last = at
			}
		}
		return nil
	})
	return j.before.done, j.before.failed, err
}
