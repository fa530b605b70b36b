package main

import (
	"context"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queuePurgeCmd is lessor queue purge.
type queuePurgeCmd struct {
	remote `embed:""`
	Name   string `arg:"" help:"Queue to empty."`
	Yes    bool   `typed:"" help:"Confirm the deletion."`
}

// Help is shown below the flags.
func (queuePurgeCmd) Help() string {
	return `Deletes the tasks that are SCHEDULED or READY. Those that a worker holds, and those that have ended, stay. Without --yes the
command shows how many there are and deletes nothing.

Example:
  lessor queue purge mail --yes`
}

func (c queuePurgeCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		if !c.Yes {
			return c.ask(a, cl)
		}
		err := changeAll(a, "deleted", nil, func(ctx context.Context, token string) (bulkAnswer, error) {
			return cl.admin.PurgeQueue(ctx,
				&lessorv1.PurgeQueueRequest{WorkspaceId: c.Workspace, Name: c.Name, PageToken: token})
		})
		if err != nil {
			return withID(c.Name, err)
		}
		return nil
	})
}

func (c queuePurgeCmd) ask(a *app, cl *client) error {
	answer, err := cl.admin.GetQueue(a.ctx, &lessorv1.GetQueueRequest{WorkspaceId: c.Workspace, Name: c.Name})
	if err != nil {
		return withID(c.Name, err)
	}
	q := answer.GetQueue()
	return fail(exitUsage, "add --yes to delete them", "queue %q has %d ready and %d scheduled tasks",
		c.Name, q.GetReady(), q.GetScheduled())
}
