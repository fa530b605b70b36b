package main

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// queueCmd is lessor queue.
type queueCmd struct {
	List   queueListCmd   `cmd:"" help:"List the queues of a workspace."`
	Get    queueGetCmd    `cmd:"" help:"Show one queue with its settings."`
	Update queueUpdateCmd `cmd:"" help:"Set the limits, weights and retry policy of a queue."`
	Pause  queuePauseCmd  `cmd:"" help:"Stop granting tasks; leased tasks go on."`
	Resume queueResumeCmd `cmd:"" help:"Resume granting tasks."`
	Purge  queuePurgeCmd  `cmd:"" help:"Delete the tasks that wait in a queue."`
}

// queueListCmd is lessor queue list.
type queueListCmd struct {
	remote `embed:""`
}

func (c queueListCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		list := newListing(a, "QUEUE", "READY", "OLDEST", "BLOCKED", "BLOCKER", "SCHEDULED", "LEASED",
			"FAILED", "SETTINGS")
		req := &lessorv1.ListQueuesRequest{WorkspaceId: c.Workspace}
		return printPages(list, queueCells, func(token string) ([]*lessorv1.Queue, string, error) {
			req.PageToken = token
			page, err := cl.admin.ListQueues(a.ctx, req)
			return page.GetQueues(), page.GetNextPageToken(), err
		})
	})
}

func queueCells(q *lessorv1.Queue) []string {
	return []string{
		q.GetName(),
		fmt.Sprint(q.GetReady()),
		words.Oldest(q),
		fmt.Sprint(q.GetBlocked()),
		blockerText(q),
		fmt.Sprint(q.GetScheduled()),
		fmt.Sprint(q.GetLeased()),
		fmt.Sprint(q.GetFailed()),
		words.Settings(q),
	}
}

// blockerText says for how long the oldest lease has been live for which blocked tasks of a queue
// wait; "" if none are blocked.
func blockerText(q *lessorv1.Queue) string {
	if q.GetOldestBlocker() == nil {
		return ""
	}
	return words.Age(q.GetOldestBlocker().AsDuration())
}
