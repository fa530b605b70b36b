package web

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// workers shows the open sessions of workers, which are those of all workspaces. The one in the query is for the links.
func (p *pages) workers(r *http.Request) (view, error) {
	workers, err := p.admin.ListWorkers(r.Context(), &lessorv1.ListWorkersRequest{PageSize: rowsPerPage, PageToken: r.URL.Query().Get("page")})
	if err != nil {
		return view{}, err
	}
	return view{Title: "Workers", Template: "workers", Live: true, Data: struct {
		Workers   []*lessorv1.Worker
		Next      string
		Workspace string
	}{workers.GetWorkers(), next(r, workers.GetNextPageToken(), nil), workspaceOf(r)}}, nil
}

// worker shows the sessions of a worker.
func (p *pages) worker(r *http.Request) (view, error) {
	name := r.URL.Query().Get("name")
	answer, err := p.admin.GetWorker(r.Context(), &lessorv1.GetWorkerRequest{WorkerId: name})
	if err != nil {
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
