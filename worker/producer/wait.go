package producer

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker/internal/quotaretry"
)

// Wait waits until a task is COMPLETED, FAILED or CANCELLED, and returns it, with its output or error. Its state says which: a task that was
// COMPLETED after failed attempts still has the error of the last of these, and one that ended without an outcome, for example at its deadline, has a
// reason, and perhaps no error. Wait goes on when the coordinator is away, when a proxy cuts the stream, when a quota is used up, and when a new credential
// has replaced the one with which it began. So only ctx limits how long it waits.
//
// The error is a status: NOT_FOUND if there is no such task (any more), CANCELLED or DEADLINE_EXCEEDED if ctx has ended, or the coordinator's refusal.
//
// Each Wait is a call under way, and so a part of the quotas of streams and watches (X5). A connection has room for 1,024 calls, and further ones wait, those
// of Submit included; to wait for more tasks at once, watch their run (WatchTask), or use another connection. Close does not end a Wait.
func (c *Client) Wait(ctx context.Context, taskID string) (*lessorv1.Task, error) {
	for failures := 0; ; failures++ {
		began, err := c.watchToEnd(ctx, taskID)
		if err == nil {
			var answer *lessorv1.GetTaskResponse
			answer, err = c.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: taskID})
			if task := answer.GetTask(); err == nil && words.Final(task.GetState()) {
				return task, nil
			}
		}
		if began {
			failures = 0
		}
		wait, ok := waitAgain(ctx, err, began, failures)
		if !ok {
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, contextEnded(ctx, "the last try", err)
		}
	}
}

// watchToEnd returns nil when a task has become final or was deleted. began says that the coordinator had let the watch begin.
func (c *Client) watchToEnd(ctx context.Context, taskID string) (began bool, err error) {
	events, err := c.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: taskID})
	for err == nil {
		if _, err = events.Recv(); err == nil {
			began = true
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return began, err
}

// waitAgain returns how long Wait waits before its next try. ok is false if err is final.
func waitAgain(ctx context.Context, err error, began bool, failures int) (wait time.Duration, ok bool) {
	switch code := status.Code(err); {
	case code == codes.OK, code == codes.Unavailable, // OK: somebody has retried the task before it was read
		began && detail.Cut(ctx, err),
		began && (code == codes.Unauthenticated || code == codes.PermissionDenied): // the credential has ended meanwhile; there may be a new one
		return backoff(failures), true
	}
	return quotaretry.Wait(err, min(failures, quotaretry.MaxRetries-1))
}
