package runner

import (
	"context"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// RetryFailed opens the lines again that have failed for good, and returns how many these are. Lines that somebody cancelled stay cancelled.
func (j *Job) RetryFailed(ctx context.Context, tasks lessorv1.TaskServiceClient) (lines uint64, err error) {
	req := &lessorv1.BatchRetryTasksRequest{Filter: j.manifest.filter(lessorv1.TaskState_TASK_STATE_FAILED)}
	for {
		var answer *lessorv1.BatchRetryTasksResponse
		err := retryWhileAway(ctx, func() (err error) { // a repeat opens the rest
			answer, err = tasks.BatchRetryTasks(ctx, req)
			return err
		})
		if err != nil {
			return lines, err
		}
		lines += answer.GetResult().GetChanged()
		if req.PageToken = answer.GetResult().GetNextPageToken(); req.PageToken == "" {
			return lines, nil
		}
	}
}
