package main

import (
	"context"

	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskCancelCmd is lessor task cancel.
type taskCancelCmd struct {
	server  `embed:""`
	taskIDs `embed:""`
	Reason  string `placeholder:"TEXT" help:"Why; told to the worker."`
}

// Help is shown below the flags.
func (taskCancelCmd) Help() string {
	return `A task that no worker holds is CANCELLED at once. Otherwise it is CANCELLING until its worker has stopped or its
cancel grace is over. Cancelling again gives the same answer.

Example:
  lessor task cancel 3f2a --reason "wrong input"`
}

func (c taskCancelCmd) Run(a *app) error {
	return c.with(func(cl *client) error {
		return c.change(a, func(ctx context.Context, id string) (proto.Message, string, error) {
			answer, err := cl.tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id, Reason: c.Reason})
			return answer, stateLine(answer.GetTask()), err
		})
	})
}

// taskRetryCmd is lessor task retry.
type taskRetryCmd struct {
	server   `embed:""`
	taskIDs  `embed:""`
	Deadline when `placeholder:"TIME" help:"New deadline: RFC 3339, or a span from now. Needed where the old one has passed."`
}

// Help is shown below the flags.
func (taskRetryCmd) Help() string {
	return `The budgets of attempts and losses begin anew; attempts are counted on.

Example:
  lessor task retry $(lessor task list --state FAILED --json | jq -r .task_id)`
}

func (c taskRetryCmd) Run(a *app) error {
	return c.with(func(cl *client) error {
		return c.change(a, func(ctx context.Context, id string) (proto.Message, string, error) {
			answer, err := cl.tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: id, Deadline: c.Deadline.timestamp()})
			return answer, stateLine(answer.GetTask()), err
		})
	})
}

// taskDeleteCmd is lessor task delete.
type taskDeleteCmd struct {
	server  `embed:""`
	taskIDs `embed:""`
	Force   bool `help:"Also while a worker holds the task: its lease is revoked."`
}

// Help is shown below the flags.
func (taskDeleteCmd) Help() string {
	return `Without --force a task that a worker holds is refused.

Example:
  lessor task delete 3f2a`
}

func (c taskDeleteCmd) Run(a *app) error {
	return c.with(func(cl *client) error {
		return c.change(a, func(ctx context.Context, id string) (proto.Message, string, error) {
			answer, err := cl.tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, Force: c.Force})
			return answer, id + "\tDELETED", err
		})
	})
}

func stateLine(t *lessorv1.Task) string {
	return t.GetTaskId() + "\t" + short(t.GetState(), "TASK_STATE_")
}
