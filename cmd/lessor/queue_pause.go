package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queueNames are the queues that a command changes.
type queueNames struct {
	Name []string `arg:"" help:"Queues to change."`
}

// queuePauseCmd is lessor queue pause.
type queuePauseCmd struct {
	remote     `embed:""`
	queueNames `embed:""`
}

// Help is shown below the flags.
func (queuePauseCmd) Help() string {
	return `Tasks still can be submitted, and workers that hold tasks finish them. The queues must exist; queue update NAME --pause creates one
that is paused.

Examples:
  lessor queue pause mail
  lessor queue update tonight --pause`
}

func (c queuePauseCmd) Run(a *app) error { return c.setPaused(a, c.remote, true) }

// queueResumeCmd is lessor queue resume.
type queueResumeCmd struct {
	remote     `embed:""`
	queueNames `embed:""`
}

func (c queueResumeCmd) Run(a *app) error { return c.setPaused(a, c.remote, false) }

// setPaused pauses or resumes every queue. If one is refused, the others are changed all the same.
func (n queueNames) setPaused(a *app, r remote, paused bool) error {
	return r.with(a, func(cl *client) error {
		return changeEach(a, n.Name, func(ctx context.Context, name string) (proto.Message, string, error) {
			// An update would create a missing queue, and a user who mistyped the name would
			// believe that the right one is paused. Who may not even read the queue may not change
			// it, and is to hear which role that takes.
			_, err := cl.admin.GetQueue(ctx, &lessorv1.GetQueueRequest{WorkspaceId: r.Workspace, Name: name})
			if err != nil && status.Code(err) != codes.PermissionDenied {
				return nil, "", err
			}
			answer, err := cl.admin.UpdateQueue(ctx,
				&lessorv1.UpdateQueueRequest{WorkspaceId: r.Workspace, Name: name, Paused: &paused})
			return answer, pausedLine(answer.GetQueue()), err
		})
	})
}

func pausedLine(q *lessorv1.Queue) string {
	word := "open"
	if q.GetPaused() {
		word = "paused"
	}
	return fmt.Sprintf("%s\t%s\t%d ready, %d leased", printable(q.GetName()), word, q.GetReady(), q.GetLeased())
}
