package web

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// longestSearch is how long a page searches for its first task. A call that has begun by then is waited for; each looks at a bounded number of tasks.
const longestSearch = time.Second

// search returns the first page of a list that has a task; if it is not found in so many calls, soon, or without going beyond a quota, that up to which there is
// none: its token leads on.
func (p *pages) search(ctx context.Context, req *lessorv1.ListTasksRequest) (*lessorv1.ListTasksResponse, error) {
	began := time.Now()
	page, err := p.tasks.ListTasks(ctx, req)
	for calls := 1; err == nil && len(page.GetTasks()) == 0 && page.GetNextPageToken() != "" && calls < mostCalls && time.Since(began) < longestSearch; calls++ {
		req.PageToken = page.GetNextPageToken()
		next, nextErr := p.tasks.ListTasks(ctx, req)
		if status.Code(nextErr) == codes.ResourceExhausted {
			return page, nil
		}
		page, err = next, nextErr
	}
	return page, err
}
