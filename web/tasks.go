package web

import (
	"net/http"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// filterParameters are what a list takes: the conditions of its filter, and which of its pages it is.
var filterParameters = []string{"queue", "state", "type", "run", "worker", "concurrency_key", "idempotency_key", "label", "page"}

// list shows the tasks that match the filter in the query.
func (p *pages) list(r *http.Request) (view, error) {
	filter, err := filterOf(r)
	if err != nil {
		return view{}, err
	}
	tasks, err := p.tasks.ListTasks(r.Context(), &lessorv1.ListTasksRequest{Filter: filter, PageSize: rowsPerPage, PageToken: r.URL.Query().Get("page")})
	if err != nil {
		return view{}, err
	}
	return view{Title: titleOf(filter), Template: "tasks", Live: true, Data: struct {
		Filter *lessorv1.TaskFilter
		Label  string
		Kept   string
		States []lessorv1.TaskState
		Tasks  []*lessorv1.Task
		Next   string
	}{filter, r.URL.Query().Get("label"), kept(r.URL.Query()), words.States(), tasks.GetTasks(), next(r, tasks.GetNextPageToken())}}, nil
}

// titleOf says which tasks a page lists, so that a reader of several pages can tell them apart.
func titleOf(f *lessorv1.TaskFilter) string {
	var parts []string
	if len(f.GetStates()) > 0 {
		parts = append(parts, states(f.GetStates(), ", "))
	}
	add := func(what, name string) {
		if name != "" {
			parts = append(parts, what+" "+name)
		}
	}
	add("queue", f.GetQueue())
	add("type", f.GetType())
	add("run", f.GetRunId())
	add("worker", f.GetWorkerId())
	add("concurrency key", f.GetConcurrencyKey())
	add("idempotency key", f.GetIdempotencyKey())
	for key, value := range f.GetLabels() { // one at most
		add("label", key+"="+value)
	}
	if f.GetWorkspaceId() != "default" {
		add("workspace", f.GetWorkspaceId())
	}
	if len(parts) == 0 {
		return "Tasks"
	}
	return "Tasks: " + strings.Join(parts, ", ")
}

// filterOf reads a filter. What is empty in the form selects all.
func filterOf(r *http.Request) (*lessorv1.TaskFilter, error) {
	query := r.URL.Query()
	filter := &lessorv1.TaskFilter{
		WorkspaceId: workspaceOf(r), Queue: query.Get("queue"), Type: query.Get("type"), RunId: query.Get("run"), WorkerId: query.Get("worker"),
		ConcurrencyKey: query.Get("concurrency_key"), IdempotencyKey: query.Get("idempotency_key"),
	}
	for _, name := range strings.Split(strings.Join(query["state"], ","), ",") { // the form has one value, for several states, too
		if name == "" {
			continue
		}
		state, known := words.StateNamed(name)
		if !known {
			return nil, malformed("state", "there is no state "+name)
		}
		filter.States = append(filter.States, state)
	}
	if label := query.Get("label"); label != "" {
		key, value, isPair := strings.Cut(label, "=")
		if !isPair {
			return nil, malformed("label", "write key=value")
		}
		filter.Labels = map[string]string{key: value}
	}
	return filter, nil
}
