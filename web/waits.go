package web

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// explanation is why a task is where it is, as the coordinator sees it.
type explanation struct {
	*lessorv1.ExplainTaskResponse
	Ended bool
}

// wait is a READY task of a queue, and why it waits.
type wait struct {
	What string
	explanation
}

// whyWaits says why tasks of a queue wait: the one that has been READY the longest, and one that its concurrency key keeps back, if some are and that one is not.
func (p *pages) whyWaits(ctx context.Context, q *lessorv1.Queue) (all []wait, err error) {
	add := func(what string, x *lessorv1.ExplainTaskResponse) {
		if x != nil {
			all = append(all, wait{what, explanation{x, false}})
		}
	}
	if id := q.GetOldestReadyTaskId(); id != "" {
		x, err := p.explain(ctx, id)
		if err != nil {
			return nil, err
		}
		add("READY the longest", x)
	}
	if q.GetBlocked() > 0 && !slices.ContainsFunc(all, func(w wait) bool { return isBlocked(w.ExplainTaskResponse) }) {
		x, err := p.blocked(ctx, q)
		if err != nil {
			return nil, err
		}
		add("Blocked by its concurrency key", x)
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

// The page of a queue looks for a blocked task in so many pages of a list, and asks about so many tasks: each costs a call whenever the page is made.
const mostSearched, mostAsked = 3, 3

// blocked explains a task of a queue that its concurrency key keeps back; nil if none is found soon. It asks about the first READY task of each key: those of a key
// that has room are not blocked.
func (p *pages) blocked(ctx context.Context, q *lessorv1.Queue) (*lessorv1.ExplainTaskResponse, error) {
	list, err := p.search(ctx, mostSearched, &lessorv1.ListTasksRequest{PageSize: rowsPerPage, Filter: &lessorv1.TaskFilter{
		WorkspaceId: q.GetWorkspaceId(), Queue: q.GetName(), States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_READY},
	}})
	if err != nil {
		return nil, err
	}
	asked := map[string]bool{"": true} // a task without a key is never blocked
	for _, t := range list.GetTasks() {
		key := t.GetSpec().GetConcurrencyKey()
		if asked[key] || len(asked) > mostAsked {
			continue
		}
		asked[key] = true
		if x, err := p.explain(ctx, t.GetTaskId()); err != nil || isBlocked(x) {
			return x, err
		}
	}
	return nil, nil
}

func isBlocked(x *lessorv1.ExplainTaskResponse) bool {
	return slices.ContainsFunc(x.GetFindings(), func(f *lessorv1.Finding) bool {
		return f.GetCode() == lessorv1.FindingCode_FINDING_CODE_CONCURRENCY_KEY
	})
}
