package producer

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
// Any number of Waits may run at once. Up to 256 of those on one connection, whatever the Client, watch their tasks, and return as soon as these end; each watch
// is a part of the quotas of streams and watches (X5). Further ones ask once a second until they can watch, or less often if over a thousand ask: n thousand
// of them ask every n seconds. To learn sooner of the ends of so many tasks, watch their run (WatchTask). Close does not end a Wait.
func (c *Client) Wait(ctx context.Context, taskID string) (*lessorv1.Task, error) {
	w := &waiter{tasks: c.tasks, taskID: taskID, room: enterRoom(c.conn)}
	defer w.room.leave()
	for failures := 0; ; failures++ {
		task, began, err := w.try(ctx)
		if err == nil && words.Final(task.GetState()) {
			return task, nil
		}
		if began {
			failures, w.lastErr = 0, nil
		}
		if ctx.Err() != nil {
			return nil, contextEnded(ctx, "the last try", w.lastErr)
		}
		wait, ok := waitAgain(ctx, err, began, failures)
		if !ok {
			return nil, err
		}
		w.lastErr = err
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, contextEnded(ctx, "the last try", err)
		}
	}
}

// waiter is one Wait in progress.
type waiter struct {
	tasks  lessorv1.TaskServiceClient
	taskID string
	room   *room
	// polls is how many polls were answered since the last watch, and size how many bytes the last answer had.
	polls, size int
	// lastErr is the error of the last try; nil after an answer.
	lastErr error
}

// try watches the task until it is final, and returns it then. If there is no room for a watch for some time, it returns the task as it is. began says that
// the coordinator had let the watch begin, or has answered the last poll.
func (w *waiter) try(ctx context.Context) (task *lessorv1.Task, began bool, err error) {
	if w.room.enterWatch(ctx, w.room.untilPoll(w.polls, w.size)) {
		defer w.room.leaveWatch()
		w.polls = 0
		if began, err = w.watchToEnd(ctx); err == nil {
			task, err = w.get(ctx)
		}
		return task, began, err
	}
	if !w.room.enterPoll(ctx) {
		return nil, false, ctx.Err()
	}
	defer w.room.leavePoll()
	began = w.polls > 0
	w.polls++
	if task, err = w.get(ctx); err != nil {
		w.polls = 0
	}
	w.size = proto.Size(task)
	return task, began || err == nil, err
}

func (w *waiter) get(ctx context.Context) (*lessorv1.Task, error) {
	answer, err := w.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: w.taskID})
	return answer.GetTask(), err
}

// watchToEnd returns nil when the task has become final or was deleted. began says that the coordinator had let the watch begin.
func (w *waiter) watchToEnd(ctx context.Context) (began bool, err error) {
	events, err := w.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: w.taskID})
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
