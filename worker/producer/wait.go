package producer

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker/internal/refused"
	"github.com/lessor-dev/lessor/worker/internal/text"
)

// Wait waits until a task is COMPLETED, FAILED or CANCELLED, and returns it, with its output or
// error. Its state says which: a task that was COMPLETED after failed attempts still has the error
// of the last of these, and one that ended without an outcome, for example at its deadline, has a
// reason, and perhaps no error. Wait goes on when the coordinator is away, when a proxy cuts the
// stream, when a quota is used up, and when a new credential has replaced the one with which it
// began. So only ctx limits how long it waits.
//
// The error is a status: NOT_FOUND if there is no such task (any more), CANCELLED or
// DEADLINE_EXCEEDED if ctx has ended, or the coordinator's refusal.
//
// Any number of Waits may run at once: they share one stream of their Client, and return as soon as
// their tasks end. Each task that is waited for counts in the quota of waits (X5), by default
// 100,000 of a tenant, and a stream may have as many; further ones ask about once a second. Close
// does not end a Wait.
func (c *Client) Wait(ctx context.Context, taskID string) (*lessorv1.Task, error) {
	if err := checkID(taskID); err != nil {
		return nil, err
	}
	var last error // of the last try
	for failures := 0; ; failures++ {
		a := c.waits.wait(ctx, taskID)
		if a.large {
			a.task, a.err = c.get(ctx, taskID)
		}
		if a.err == nil && words.Final(a.task.GetState()) {
			return a.task, nil
		}
		if ctx.Err() != nil {
			if noStream := c.waits.lastErr(); noStream != nil {
				last = noStream
			}
			return nil, contextEnded(ctx, "the last try", last)
		}
		pause, ok := waitAgain(ctx, a.err, false, failures)
		if !ok {
			return nil, a.err
		}
		last = a.err
		if !sleep(ctx, pause) {
			return nil, contextEnded(ctx, "the last try", last)
		}
	}
}

// checkID checks the id of a task. The coordinator would refuse a bad one, and perhaps with it the
// requests of other Waits.
func checkID(taskID string) error {
	if text.CheckID("task_id", taskID) != nil {
		return invalid("task_id", "must be valid UTF-8 of at most %d bytes, without control characters", text.Max)
	}
	return nil
}

func (c *Client) get(ctx context.Context, taskID string) (*lessorv1.Task, error) {
	answer, err := c.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: taskID})
	return answer.GetTask(), err
}

// waitAgain returns how long to wait before the next try. began says that the coordinator had
// accepted the stream that failed. ok is false if err is final.
func waitAgain(ctx context.Context, err error, began bool, failures int) (wait time.Duration, ok bool) {
	switch code := status.Code(err); {
	case code == codes.OK, code == codes.Unavailable, // OK: the coordinator has ended the stream, or somebody has retried the task before it was read
		began && detail.Cut(ctx, err),
		// the credential has ended meanwhile; there may be a new one
		began && (code == codes.Unauthenticated || code == codes.PermissionDenied):
		return backoff(failures), true
	}
	return refused.Wait(err, min(failures, refused.MaxRetries-1))
}
