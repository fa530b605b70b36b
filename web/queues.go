package web

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// overview shows the coordinator and the queues of a workspace.
func (p *pages) overview(r *http.Request) (view, error) {
	coordinator, err := p.admin.GetStatus(r.Context(), &lessorv1.GetStatusRequest{})
	if err != nil {
		return view{}, err
	}
	queues, err := p.admin.ListQueues(r.Context(), &lessorv1.ListQueuesRequest{
		WorkspaceId: workspaceOf(r), PageSize: rowsPerPage, PageToken: r.URL.Query().Get("page"),
	})
	if err != nil {
		return view{}, err
	}
	return view{Title: "Overview", Template: "overview", Live: true, Data: struct {
		Status    *lessorv1.GetStatusResponse
		Queues    []*lessorv1.Queue
		Part      bool // there are more, before or after these
		Idle      int
		Next      string
		Workspace string
	}{
		coordinator, queues.GetQueues(), queues.GetNextPageToken() != "" || r.URL.Query().Get("page") != "",
		idleAmong(queues.GetQueues()),
		next(r, queues.GetNextPageToken(), nil), workspaceOf(r),
	}}, nil
}

// idle reports whether a queue has tasks for which nobody asks. A worker over HTTP asks for work
// only when it has none.
func idle(q *lessorv1.Queue) bool {
	return q.GetReady() > 0 && q.GetTakers() == 0 && q.GetLeased() == 0
}

func idleAmong(queues []*lessorv1.Queue) (n int) {
	for _, q := range queues {
		if idle(q) {
			n++
		}
	}
	return n
}

// queue shows a queue.
func (p *pages) queue(r *http.Request) (view, error) {
	name := r.URL.Query().Get("name")
	queue, err := p.admin.GetQueue(r.Context(), &lessorv1.GetQueueRequest{WorkspaceId: workspaceOf(r), Name: name})
	if err != nil {
		return view{}, err
	}
	workers, err := p.searchWorkers(r.Context(),
		&lessorv1.ListWorkersRequest{Queue: name, PageSize: rowsPerPage}, workspaceOf(r))
	if err != nil {
		return view{}, err
	}
	waits, err := p.whyWaits(r.Context(), queue.GetQueue())
	if err != nil {
		return view{}, err
	}
	return view{Title: "Queue " + name, Template: "queue", Live: true, Data: struct {
		sessions
		Queue  *lessorv1.Queue
		Waits  []wait
		More   bool
		States []lessorv1.TaskState
	}{
		sessions{Workers: workers.GetWorkers(), Workspace: workspaceOf(r)},
		queue.GetQueue(), waits, workers.GetNextPageToken() != "", words.States(),
	}}, nil
}
