package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// filterParameters are what a list takes: the conditions of its filter, of which the form hides the
// second line until they are used, its order, and which of its pages it is.
var (
	filterParameters = slices.Concat([]string{"queue", "state", "type", "run", "ended_since"}, lessUsed,
		[]string{"order", "page"})
	lessUsed = []string{
		"end_reason", "error_category", "ended_until", "since", "until", "worker",
		"concurrency_key", "idempotency_key", "host_node", "label",
	}
)

// list shows the tasks that match the filter in the query.
func (p *pages) list(r *http.Request) (view, error) {
	query := r.URL.Query()
	form := formOf(r)
	filter, err := filterOf(r, time.Now())
	if err != nil {
		return view{Form: form}, err
	}
	newestFirst, err := isNewestFirst(query)
	if err != nil {
		return view{Form: form}, err
	}
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: rowsPerPage, NewestFirst: newestFirst}
	tasks, err := search(query.Get("page"), func(token string) (*lessorv1.ListTasksResponse, error) {
		req.PageToken = token
		return p.tasks.ListTasks(r.Context(), req)
	}, func(page *lessorv1.ListTasksResponse) int { return len(page.GetTasks()) })
	if err != nil {
		return view{Form: form}, inWordsOfTheForm(err)
	}
	return view{Title: titleOf(filter), Template: "tasks", Form: form, Live: true, Data: struct {
		Filter *lessorv1.TaskFilter
		Orders []choice
		Ended  []choice
		Tasks  []*lessorv1.Task
		Next   string
	}{filter, orders(query, newestFirst), ends(filter, query), tasks.GetTasks(), next(r, tasks.GetNextPageToken(), fixed(filter))}}, nil
}

// isNewestFirst reads the order of a list.
func isNewestFirst(query url.Values) (bool, error) {
	switch order := query.Get("order"); order {
	case "", newest:
		return true, nil
	case oldest:
		return false, nil
	default:
		return false, malformed("order", "is newest or oldest, and not "+order)
	}
}

// The orders of a list.
const newest, oldest = "newest", "oldest"

// form is the form of a filter. It has what was asked for, also if that is no filter.
type form struct {
	Workspace               string
	Query                   url.Values
	Kept                    string
	More                    bool // conditions that are less used
	State, Reason, Category selection
}

// selection is a box of a form that has one of some names. It has what was asked for as one more,
// if that is several names or none of them.
type selection struct {
	Asked string
	Names []string
}

func formOf(r *http.Request) *form {
	query := r.URL.Query()
	selected := func(parameter string, known []string) selection {
		asked := strings.ToUpper(strings.Join(valuesOf(query, parameter), ","))
		if asked != "" && !slices.Contains(known, asked) {
			known = append([]string{asked}, known...)
		}
		return selection{asked, known}
	}
	return &form{
		workspaceOf(r), query, kept(query),
		slices.ContainsFunc(lessUsed, func(name string) bool { return query.Get(name) != "" }),
		selected("state", words.StateNames()), selected("end_reason", words.EndReasonNames()),
		selected("error_category", words.CategoryNames()),
	}
}

// parameterOf has the parameters for fields of a filter that have other names.
var parameterOf = strings.NewReplacer("filter.", "", "workspace_id", "workspace", "run_id", "run",
	"worker_id", "worker", "host_node_id", "host_node",
	"created_after", "since", "created_before", "until", "finished_after", "ended_since", "finished_before",
	"ended_until")

// inWordsOfTheForm returns an error that names parameters in the place of the fields that the
// coordinator refuses.
func inWordsOfTheForm(err error) error {
	if told := status.Convert(err); told.Code() == codes.InvalidArgument {
		return status.Error(codes.InvalidArgument, parameterOf.Replace(told.Message()))
	}
	return err
}

// choice is one of several links.
type choice struct {
	Text, Href string
	Current    bool
}

// changed returns the link to the first page of the list in a query that has another value of a
// parameter; "" leaves it out.
func changed(query url.Values, parameter, value string, without ...string) string {
	values := url.Values{}
	for name := range query {
		if name != "page" && name != parameter && !slices.Contains(without, name) {
			values.Set(name, strings.Join(query[name], ","))
		}
	}
	if value != "" {
		values.Set(parameter, value)
	}
	return "/ui/tasks?" + values.Encode()
}

// orders returns links to the list in both orders.
func orders(query url.Values, newestFirst bool) []choice {
	return []choice{
		{"newest first", changed(query, "order", ""), newestFirst},
		{"oldest first", changed(query, "order", oldest), !newestFirst},
	}
}

// ends returns links to those of the tasks that have ended lately, which were not always submitted
// lately. It returns none if the list has no ended tasks.
func ends(f *lessorv1.TaskFilter, query url.Values) (links []choice) {
	if len(f.GetStates()) > 0 && !slices.ContainsFunc(f.GetStates(), words.Final) {
		return nil
	}
	for _, c := range []struct{ text, since string }{{"ended in the last hour", "-1h"}, {"in the last 24 h", "-24h"}, {"all", ""}} {
		current := query.Get("ended_since") == c.since && query.Get("ended_until") == ""
		links = append(links, choice{c.text, changed(query, "ended_since", c.since, "ended_until"), current})
	}
	return links
}

// titleOf says which tasks a page lists, so that a reader of several pages can tell them apart.
func titleOf(f *lessorv1.TaskFilter) string {
	var parts []string
	if len(f.GetStates()) > 0 {
		parts = append(parts, names(f.GetStates(), ", "))
	}
	add := func(what, name string) {
		if name != "" {
			parts = append(parts, what+" "+name)
		}
	}
	add("queue", f.GetQueue())
	add("type", f.GetType())
	add("run", f.GetRunId())
	add("ended for", names(f.GetReasons(), " or "))
	add("error", names(f.GetErrorCategories(), " or "))
	for _, limit := range timeLimits(f) {
		add(strings.ReplaceAll(limit.name, "_", " "), moment(*limit.at))
	}
	add("worker", f.GetWorkerId())
	add("concurrency key", f.GetConcurrencyKey())
	add("idempotency key", f.GetIdempotencyKey())
	add("host node", f.GetHostNodeId())
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
func filterOf(r *http.Request, now time.Time) (*lessorv1.TaskFilter, error) {
	query := r.URL.Query()
	filter := &lessorv1.TaskFilter{
		WorkspaceId:    workspaceOf(r),
		Queue:          query.Get("queue"),
		Type:           query.Get("type"),
		RunId:          query.Get("run"),
		WorkerId:       query.Get("worker"),
		ConcurrencyKey: query.Get("concurrency_key"),
		IdempotencyKey: query.Get("idempotency_key"),
		HostNodeId:     query.Get("host_node"),
	}
	var err error
	if filter.States, err = namedBy(query, "state", words.StateNamed, "there is no state"); err != nil {
		return nil, err
	}
	if filter.Reasons, err = namedBy(query, "end_reason", words.EndReasonNamed, "no task ends for the reason"); err != nil {
		return nil, err
	}
	if filter.ErrorCategories, err = namedBy(query, "error_category", words.CategoryNamed, "no error has the category"); err != nil {
		return nil, err
	}
	if label := query.Get("label"); label != "" {
		key, value, isPair := strings.Cut(label, "=")
		if !isPair {
			return nil, malformed("label", "write key=value")
		}
		filter.Labels = map[string]string{key: value}
	}
	return filter, readTimes(query, now, filter)
}
