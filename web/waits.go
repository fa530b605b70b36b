package web

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// explanation is why a task is where it is, as the coordinator sees it.
type explanation struct {
	*lessorv1.ExplainTaskResponse
	Ended bool
}

// wait is a task that shows why a queue waits.
type wait struct {
	What string
	explanation
}

// whyWaits says why tasks of a queue wait: how the one is that has been READY the longest, and how
// the one is that has kept others back the longest, if any does.
func (p *pages) whyWaits(ctx context.Context, q *lessorv1.Queue) (all []wait, err error) {
	oldest := "READY the longest"
	if q.GetOldestReadyAtLeast() {
		oldest += " of those looked at"
	}
	for _, of := range []struct{ what, id string }{
		{oldest, q.GetOldestReadyTaskId()},
		{"Has kept others of its concurrency key back the longest, for " + words.Age(q.GetOldestBlocker().AsDuration()), q.GetOldestBlockerTaskId()},
	} {
		if of.id == "" {
			continue
		}
		x, err := p.explain(ctx, of.id)
		if err != nil {
			return nil, err
		}
		if x != nil {
			all = append(all, wait{of.what, explanation{x, false}})
		}
	}
	return all, nil
}

// explain returns nil if the task was deleted meanwhile.
func (p *pages) explain(ctx context.Context, id string) (*lessorv1.ExplainTaskResponse, error) {
	x, err := p.tasks.ExplainTask(ctx, &lessorv1.ExplainTaskRequest{TaskId: id})
	if status.Code(err) == codes.NotFound {
		return nil, nil
	}
	return x, err
}
