package web

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// sessions are what a table of workers shows. The workspace is that of the links; if the workers
// are those of all workspaces, each row has its own.
type sessions struct {
	Workers   []*lessorv1.Worker
	Workspace string
	All       bool
}

// everywhere is the value of the parameter "of" for the workers of all workspaces.
const everywhere = "all"

// workers shows the open sessions of workers: those of a workspace, or all with their workspaces.
func (p *pages) workers(r *http.Request) (view, error) {
	query, workspace := r.URL.Query(), workspaceOf(r)
	all := query.Get("of") == everywhere
	if !all && query.Get("of") != "" {
		return view{}, malformed("of", "is all or empty, and not "+query.Get("of"))
	}
	in := workspace
	if all {
		in = ""
	}
	workers, err := p.searchWorkers(r.Context(),
		&lessorv1.ListWorkersRequest{PageSize: rowsPerPage, PageToken: query.Get("page")}, in)
	if err != nil {
		return view{}, err
	}
	return view{Title: "Workers", Template: "workers", Live: true, Data: struct {
		sessions
		Of    []choice
		Later bool // it is not the first page
		Next  string
	}{
		sessions{workers.GetWorkers(), workspace, all},
		[]choice{
			{"workspace " + workspace, link("/ui/workers", "workspace", workspace), !all},
			{"all workspaces", link("/ui/workers", "workspace", workspace, "of", everywhere), all},
		},
		query.Get("page") != "",
		next(r, workers.GetNextPageToken(), nil),
	}}, nil
}

// searchWorkers returns the first page with a session of a workspace, or with any if workspace is
// empty, from the page of the request on.
func (p *pages) searchWorkers(
	ctx context.Context, from *lessorv1.ListWorkersRequest, workspace string,
) (*lessorv1.ListWorkersResponse, error) {
	return search(from.GetPageToken(), func(token string) (*lessorv1.ListWorkersResponse, error) {
		from.PageToken = token
		page, err := p.admin.ListWorkers(ctx, from)
		if workspace != "" {
			page = &lessorv1.ListWorkersResponse{
				Workers:       inWorkspace(page.GetWorkers(), workspace),
				NextPageToken: page.GetNextPageToken(),
			}
		}
		return page, err
	}, func(page *lessorv1.ListWorkersResponse) int { return len(page.GetWorkers()) })
}

// inWorkspace returns the workers whose queues are those of a workspace: another workspace may have
// a queue of the same name.
func inWorkspace(all []*lessorv1.Worker, workspace string) (in []*lessorv1.Worker) {
	for _, w := range all {
		if w.GetWorkspaceId() == workspace {
			in = append(in, w)
		}
	}
	return in
}

// worker shows the sessions of a worker. It may have none and work all the same, over HTTP or by
// unary calls, so that is no error.
func (p *pages) worker(r *http.Request) (view, error) {
	name := r.URL.Query().Get("name")
	answer, err := p.admin.GetWorker(r.Context(), &lessorv1.GetWorkerRequest{WorkerId: name})
	if err != nil && status.Code(err) != codes.NotFound {
		return view{}, err
	}
	return view{Title: "Worker " + name, Template: "worker", Live: true, Data: struct {
		Name      string
		Workers   []*lessorv1.Worker
		Sessions  uint32
		More      bool
		Workspace string
	}{name, answer.GetWorkers(), answer.GetSessions(), int(answer.GetSessions()) > len(answer.GetWorkers()), workspaceOf(r)}}, nil
}
