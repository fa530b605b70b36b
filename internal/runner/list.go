package runner

import (
	"context"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// maxPage is the largest page that a coordinator returns.
const maxPage = 1000

// filter selects the tasks of the run in the given states; without states, all of them.
func (m *manifest) filter(states ...lessorv1.TaskState) *lessorv1.TaskFilter {
	return &lessorv1.TaskFilter{WorkspaceId: m.Options.Workspace, RunId: m.RunID, States: states}
}

// eachTask visits the tasks that a filter selects, oldest first: those of a run in the order of the
// input.
func eachTask(
	ctx context.Context, tasks lessorv1.TaskServiceClient, filter *lessorv1.TaskFilter,
	visit func(*lessorv1.Task) error,
) error {
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: maxPage}
	for {
		var page *lessorv1.ListTasksResponse
		err := retryWhileAway(ctx, func() (err error) {
			page, err = tasks.ListTasks(ctx, req)
			return err
		})
		if err != nil {
			return err
		}
		for _, task := range page.GetTasks() {
			if err := visit(task); err != nil {
				return err
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
}
