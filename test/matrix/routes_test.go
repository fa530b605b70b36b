package matrix

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// routeRow declares who may use a route, the call that it leads to, and good parameters or a good
// body. Without roles, the route needs a task token.
type routeRow struct {
	roles auth.Role
	call  string
	query func(n names) map[string]string
	body  func(n names) map[string]any
}

// routes has a row for each route of the OpenAPI document.
var routes = map[string]routeRow{
	"GET /openapi.json": {},
	"POST /v1/leases": {roles: working, call: "Lease", body: func(n names) map[string]any {
		return map[string]any{"workerId": n["worker"], "queues": []any{n["queue"]}, "maxTasks": 10}
	}},
	"POST /v1/tasks": {roles: producing, call: "SubmitTask", body: func(n names) map[string]any {
		return map[string]any{"queue": n["queue"], "runId": n["run"], "type": n["type"], "payload": payloadMark, "resourceRefs": []any{
			map[string]any{"resourceId": n["resource"], "workerId": n["worker"]},
		}}
	}},
	"POST /v1/tasks:batchSubmit": {roles: producing, call: "BatchSubmitTasks", body: func(n names) map[string]any {
		return map[string]any{"tasks": []any{map[string]any{ // one, since all are in the same workspace
			"queue": n["queue"], "runId": n["run"], "type": n["type"], "payload": payloadMark, "resourceRefs": []any{
				map[string]any{"resourceId": n["resource"], "workerId": n["worker"]},
			},
		}}}
	}},
	"GET /v1/tasks": {roles: reading, call: "ListTasks", query: func(n names) map[string]string {
		return map[string]string{"runId": n["run"], "pageSize": "1"}
	}},
	"POST /v1/tasks:batchCancel": {roles: producing, call: "BatchCancelTasks", body: func(n names) map[string]any {
		return map[string]any{"filter": map[string]any{"runId": n["run"]}}
	}},
	"POST /v1/tasks:batchRetry": {roles: producing, call: "BatchRetryTasks", body: func(n names) map[string]any {
		return map[string]any{"filter": map[string]any{"runId": n["run"]}}
	}},
	"POST /v1/tasks:batchDelete": {roles: operating, call: "BatchDeleteTasks", body: func(n names) map[string]any {
		return map[string]any{"filter": map[string]any{"runId": n["run"]}, "force": true}
	}},
	"DELETE /v1/tasks/{task_id}": {roles: operating, call: "DeleteTask", query: func(names) map[string]string {
		return map[string]string{"force": "true"}
	}},
	"POST /v1/tasks/{task_id}:retry": {roles: producing, call: "RetryTask", body: func(names) map[string]any { return map[string]any{} }},
	"POST /v1/tasks/{task_id}:adopt": {roles: operating, call: "AdoptResult", body: func(names) map[string]any { return map[string]any{} }},
	"GET /v1/tasks/{task_id}": {roles: reading, call: "GetTask", query: func(names) map[string]string {
		return map[string]string{"waitMs": fmt.Sprint(shortWait.Milliseconds())}
	}},
	"GET /v1/tasks/{task_id}/events":  {roles: reading, call: "WatchTask"},
	"POST /v1/tasks/{task_id}:cancel": {roles: producing, call: "CancelTask", body: func(names) map[string]any { return map[string]any{} }},
	"POST /v1/tasks/{task_id}/started": {body: func(n names) map[string]any {
		return map[string]any{"attempt": 1, "workerId": n["worker"]}
	}},
	"POST /v1/tasks/{task_id}/heartbeat": {body: func(n names) map[string]any {
		return map[string]any{"attempt": 1, "workerId": n["worker"], "checkpoint": checkpointMark}
	}},
	"POST /v1/tasks/{task_id}/completed": {body: func(n names) map[string]any {
		return map[string]any{"attempt": 1, "workerId": n["worker"], "outcome": "SUCCEEDED", "output": outputMark, "artifacts": []any{
			map[string]any{"resourceId": n["resource"], "workerId": n["worker"]},
		}}
	}},
}

// routePlaces returns a place for each route of the document. Those that need a task token are in
// holders.
func routePlaces(t *testing.T, doc document) (places, callbackPlaces []*place) {
	t.Helper()
	used := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			name := strings.ToUpper(method) + " " + path
			row, declared := routes[name]
			if used[name] = true; !declared {
				t.Errorf("%s: declare in routes who may use it, with a good body", name)
				continue
			}
			p := &place{
				name: name, action: row.call, roles: row.roles, declaringCredential: operator,
				send: (*host).request, web: true,
			}
			p.goodRequest = func(n names) request {
				r := &webRequest{method: strings.ToUpper(method), path: path, params: map[string]string{"task_id": n["task"]}}
				if row.body != nil {
					r.body = row.body(n)
				}
				if row.query != nil {
					r.query = row.query(n)
				}
				return r
			}
			p.fields = doc.fieldsOf(t, doc.Paths[path][method])
			p.together = together(p.fields, func(f field) bool { return f.kind != "sequence" })
			switch {
			case path == "/openapi.json":
				p.unguarded, p.roles = true, auth.Everybody
				places = append(places, p)
			case row.roles == auth.Nobody:
				p.declaringCredential, p.roles = holder, auth.Worker
				callbackPlaces = append(callbackPlaces, p)
			default:
				places = append(places, p)
			}
		}
	}
	for name := range routes {
		if !used[name] {
			t.Errorf("%s is no route", name)
		}
	}
	return places, callbackPlaces
}

// document is the part of the OpenAPI document that the test reads.
type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]*schema }
}

type operation struct {
	Parameters []struct {
		In, Name string
		Schema   *schema
	}
	RequestBody struct {
		Content map[string]struct{ Schema *schema }
	}
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any    // a name, or a list of names
	Format               string
	Items                *schema
	Properties           map[string]*schema
	AdditionalProperties *schema
	AllOf                []*schema
}

// is reports whether a value may have the type.
func (s *schema) is(name string) bool {
	all, _ := s.Type.([]any)
	return s.Type == name || slices.Contains(all, any(name))
}

// namesNothing reports whether the type has no names.
func (s *schema) namesNothing() bool {
	return s.Format == "date-time" || s.is("boolean") || s.is("number")
}

// readDocument reads the document from a host.
func (e *environment) readDocument(t *testing.T) (doc document) {
	t.Helper()
	e.onHost(t, func(h *host) {
		r := &webRequest{method: http.MethodGet, path: "/openapi.json"}
		if err := json.Unmarshal([]byte(h.send(nil, r).body), &doc); err != nil {
			h.t.Fatal(err)
		}
	})
	return doc
}

// fieldsOf lists what names something in the path, the query, the headers and the body of a
// request, at any depth.
func (d document) fieldsOf(t *testing.T, o operation) (found []field) {
	t.Helper()
	for _, p := range o.Parameters {
		if p.Schema.namesNothing() {
			continue
		}
		k, ofFilter := kinds["TaskFilter."+snake(p.Name)]
		if p.In != "query" || !ofFilter {
			k = d.kindOf(t, p.Name)
		}
		if k != plain {
			found = append(found, field{[]string{p.In, p.Name}, k})
		}
	}
	for _, content := range o.RequestBody.Content {
		found = append(found, d.walk(t, []string{"body"}, content.Schema)...)
	}
	return found
}

func (d document) walk(t *testing.T, path []string, s *schema) (found []field) {
	t.Helper()
	s = d.resolve(s)
	for _, part := range s.AllOf {
		found = append(found, d.walk(t, path, part)...)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		inner, at := d.resolve(s.Properties[name]), append(slices.Clone(path), name)
		if inner.is("array") {
			inner = d.resolve(inner.Items)
		}
		if len(inner.Properties) > 0 {
			found = append(found, d.walk(t, at, inner)...)
			continue
		}
		if inner.namesNothing() || strings.HasSuffix(name, "Ms") {
			continue
		}
		if k := d.kindOf(t, name); k != plain {
			found = append(found, field{at, k})
		}
	}
	return found
}

func (d document) resolve(s *schema) *schema {
	if name, found := strings.CutPrefix(s.Ref, "#/components/schemas/"); found {
		return d.Components.Schemas[name]
	}
	return s
}

// kindOf returns what a field names, by kinds (with the name in the case of the protos) or
// webKinds.
func (d document) kindOf(t *testing.T, name string) kind {
	t.Helper()
	k, ok := kinds[snake(name)]
	if !ok {
		k, ok = webKinds[name]
	}
	if !ok {
		t.Errorf("%s: say in webKinds what it names", name)
	}
	return k
}

// webKinds has the fields that only HTTP requests have.
var webKinds = map[string]kind{
	"key": "affinity", "attemptId": "attempt", "Last-Event-ID": "sequence",
	"states": plain, "reasons": plain, "errorCategories": plain, "mode": plain, "scope": plain, "category": plain, "payloadBase64": plain, "outputBase64": plain, "checkpointBase64": plain,
	"nonRetryableCategories": plain, "waitMs": plain,
}

// snake converts a name to the case of the protos.
func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToLower(string(c)))
	}
	return b.String()
}
