package main

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queueCmd is lessor queue.
type queueCmd struct {
	List queueListCmd `cmd:"" help:"List the queues of a workspace."`
}

// queueListCmd is lessor queue list.
type queueListCmd struct {
	remote `embed:""`
}

func (c queueListCmd) Run(a *app) error {
	return c.with(func(cl *client) error {
		list := newListing(a, "QUEUE", "READY", "SCHEDULED", "LEASED", "AGE")
		req := &lessorv1.ListQueuesRequest{WorkspaceId: c.Workspace}
		for {
			page, err := cl.admin.ListQueues(a.ctx, req)
			if err != nil {
				return err
			}
			for _, q := range page.GetQueues() {
				if err := list.add(q, q.GetName(), fmt.Sprint(q.GetReady()), fmt.Sprint(q.GetScheduled()), fmt.Sprint(q.GetLeased()), age(q.GetCreatedAt())); err != nil {
					return err
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return list.flush()
			}
		}
	})
}
