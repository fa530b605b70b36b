package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskCancelCmd is lessor task cancel.
type taskCancelCmd struct {
	remote        `embed:""`
	taskSelection `embed:""`
	Reason        string `placeholder:"TEXT" help:"Why; told to the worker."`
}

// Help is shown below the flags.
func (taskCancelCmd) Help() string {
	return `A task that no worker holds is CANCELLED at once. Otherwise it is CANCELLING until its worker has stopped or its
cancel grace is over. Cancelling again gives the same answer. A run of which there is no task (any more) is an error.

Examples:
  lessor task cancel t0000200000000001 --reason "wrong input"
  lessor task cancel --run-id nightly --label team=blue`
}

func (c taskCancelCmd) Run(a *app) error {
	filter, err := c.selected(c.Workspace)
	if err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		if filter != nil {
			none := func() error { return requireRun(a, cl, filter) }
			return changeAll(a, "asked to end", none, func(ctx context.Context, token string) (bulkAnswer, error) {
				return cl.tasks.BatchCancelTasks(ctx,
					&lessorv1.BatchCancelTasksRequest{Filter: filter, All: c.All, Reason: c.Reason, PageToken: token})
			})
		}
		return changeEach(a, c.TaskID, func(ctx context.Context, id string) (proto.Message, string, error) {
			answer, err := cl.tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: id, Reason: c.Reason})
			return answer, stateLine(answer.GetTask()), err
		})
	})
}

// taskRetryCmd is lessor task retry.
type taskRetryCmd struct {
	remote        `embed:""`
	taskSelection `embed:""`
	Deadline      when `placeholder:"TIME" help:"New deadline: RFC 3339, or a span from now. Required if the old one has passed."`
}

// Help is shown below the flags.
func (taskRetryCmd) Help() string {
	return `The budgets of attempts and losses start again at 0; the number of the attempt goes on. The task is READY
at once, even if it was cancelled before its run_at.

Tasks that are selected by a filter are skipped if they have neither FAILED nor been CANCELLED, or if their deadline has passed and you
give no --deadline. A run of which there is no task (any more) is an error.

Examples:
  lessor task retry t0000200000000001
  lessor task retry --queue mail --state FAILED`
}

func (c taskRetryCmd) Run(a *app) error {
	filter, err := c.selected(c.Workspace)
	if err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		if filter != nil {
			none := func() error { return requireRun(a, cl, filter) }
			return changeAll(a, "retried", none, func(ctx context.Context, token string) (bulkAnswer, error) {
				return cl.tasks.BatchRetryTasks(ctx,
					&lessorv1.BatchRetryTasksRequest{
						Filter: filter, All: c.All,
						Deadline: c.Deadline.timestamp(), PageToken: token,
					})
			})
		}
		return changeEach(a, c.TaskID, func(ctx context.Context, id string) (proto.Message, string, error) {
			answer, err := cl.tasks.RetryTask(ctx,
				&lessorv1.RetryTaskRequest{TaskId: id, Deadline: c.Deadline.timestamp()})
			return answer, stateLine(answer.GetTask()), err
		})
	})
}

// requireRun returns an error if the filter names a run of which there is no task. Whoever
// misspells it would believe that its tasks are changed. Nothing is left of a run when its tasks
// are gone, so that a run that is long over cannot be told from one that never was. It is for after
// the change: a tenant that has used its quota of calls up may still cancel, but not list.
func requireRun(a *app, cl *client, filter *lessorv1.TaskFilter) error {
	if filter.GetRunId() == "" {
		return nil
	}
	req := &lessorv1.ListTasksRequest{
		Filter:   &lessorv1.TaskFilter{WorkspaceId: filter.GetWorkspaceId(), RunId: filter.GetRunId()},
		PageSize: 1,
	}
	for {
		page, err := cl.tasks.ListTasks(a.ctx, req)
		if err != nil || len(page.GetTasks()) > 0 {
			return err
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return fail(exitNotFound, "tasks that have ended are deleted when their retention is over",
				"there is no task with the run id %q", filter.GetRunId())
		}
	}
}

// taskDeleteCmd is lessor task delete.
type taskDeleteCmd struct {
	remote        `embed:""`
	taskSelection `embed:""`
	Force         bool `typed:"" help:"Also delete tasks that a worker holds: their leases are revoked."`
	Yes           bool `typed:"" help:"Confirm the deletion of the tasks that the filter or --all selects."`
}

// Help is shown below the flags.
func (taskDeleteCmd) Help() string {
	return `Without --force a task that a worker holds is refused. Without --yes, a filter or --all only counts the tasks that it selects.

Examples:
  lessor task delete t0000200000000001
  lessor task delete --queue mail --state COMPLETED,CANCELLED --yes`
}

func (c taskDeleteCmd) Run(a *app) error {
	filter, err := c.selected(c.Workspace)
	if err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		if filter != nil && !c.Yes {
			return c.ask(a, cl, filter)
		}
		if filter != nil {
			return changeAll(a, "deleted", nil, func(ctx context.Context, token string) (bulkAnswer, error) {
				return cl.tasks.BatchDeleteTasks(ctx,
					&lessorv1.BatchDeleteTasksRequest{Filter: filter, All: c.All, Force: c.Force, PageToken: token})
			})
		}
		return changeEach(a, c.TaskID, func(ctx context.Context, id string) (proto.Message, string, error) {
			answer, err := cl.tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: id, Force: c.Force})
			return answer, id + "\tDELETED", withForce(err)
		})
	})
}

// ask counts the tasks that would be deleted.
func (c taskDeleteCmd) ask(a *app, cl *client, filter *lessorv1.TaskFilter) error {
	n, err := countTasks(a, cl, filter)
	if err != nil {
		return err
	}
	if n.total() == 0 {
		return fail(exitUsage, "", "no task is selected; deleting by a filter or --all needs --yes")
	}
	hint := "add --yes to delete them; lessor task list shows them"
	if n.held() > 0 && !c.Force {
		hint = "add --yes to delete those that no worker holds, and --force for the others; lessor task list shows them"
	}
	return fail(exitUsage, hint, "%s selected: %v", are(n.total(), "task"), n)
}

// withForce adds a hint to a refused delete: a worker holds the task, and --force deletes it. There
// is no other state in which a delete is refused.
func withForce(err error) error {
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	f := *explain(err)
	f.hint = "--force revokes the lease and deletes it"
	return &f
}

func stateLine(t *lessorv1.Task) string {
	return t.GetTaskId() + "\t" + words.Name(t.GetState())
}
