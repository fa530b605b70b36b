package web

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// found is a page of tasks, and how many calls it took to find it.
type found struct {
	*lessorv1.ListTasksResponse
	Calls int
}

// longestSearch is how long a page searches for its first task. A call that has begun by then is waited for; each looks at a bounded number of tasks.
const longestSearch = time.Second

// search returns the first page of a list that has a task; if it is not found in so many calls, soon, or without going beyond a quota, that up to which there is
// none: its token leads on.
func (p *pages) search(ctx context.Context, most int, req *lessorv1.ListTasksRequest) (f found, err error) {
	for began := time.Now(); f.Calls == 0 || len(f.GetTasks()) == 0 && f.GetNextPageToken() != "" && f.Calls < most && time.Since(began) < longestSearch; {
		page, err := p.tasks.ListTasks(ctx, req)
		if f.Calls > 0 && status.Code(err) == codes.ResourceExhausted {
			return f, nil
		}
		if err != nil {
			return found{}, err
		}
		f = found{page, f.Calls + 1}
		req.PageToken = page.GetNextPageToken()
	}
	return f, nil
}
