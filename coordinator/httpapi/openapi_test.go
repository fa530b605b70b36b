package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/internal/words"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// operation describes a route for openapi.json.
type operation struct {
	id       string // operationId, from which generators make the names of calls
	summary  string
	token    string // scheme of the credential; empty: none is needed
	request  any    // struct of the body; nil: no body
	optional bool   // the body may be left out
	query    any    // struct of the parameters in the URL; nil: none
	answers  map[int]any
	header   string // a header that it uses
	noBody   string // what an answer without a body says
}

// Responses that several routes have in common.
var (
	commonErrors = map[int]any{
		400: problemBody{}, 401: problemBody{}, 403: problemBody{}, 408: problemBody{}, 413: problemBody{},
		429: problemBody{}, 500: problemBody{}, 503: problemBody{},
	}
	leaseErrors   = map[int]any{409: problemBody{}, 410: problemBody{}}
	notFoundError = map[int]any{404: problemBody{}}
)

func withAnswers(ok map[int]any, more ...map[int]any) map[int]any {
	all := maps.Clone(ok)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

var operations = map[string]operation{
	"POST /v1/tasks/{task_id}/started": {
		id: "reportStarted", summary: "Reports that execution has begun, and renews the lease.", token: "taskToken",
		request: startedRequest{},
		answers: withAnswers(map[int]any{200: alive{}}, commonErrors, leaseErrors),
	},
	"POST /v1/tasks/{task_id}/heartbeat": {
		id: "sendHeartbeat", summary: "Renews the lease; the answer tells whether the task is being cancelled.",
		token:   "taskToken",
		request: heartbeatRequest{},
		answers: withAnswers(map[int]any{200: alive{}}, commonErrors, leaseErrors),
	},
	"POST /v1/tasks/{task_id}/completed": {
		id: "reportCompleted", summary: "Reports how the attempt ended.", token: "taskToken", request: completedRequest{},
		answers: withAnswers(map[int]any{200: completedResponse{}}, commonErrors, leaseErrors),
	},
	"POST /v1/leases": {
		id: "leaseTasks", summary: "Grants waiting tasks; waits up to waitMs milliseconds for the first.",
		token: "credential", request: leaseRequest{},
		answers: withAnswers(map[int]any{200: leaseResponse{}}, commonErrors),
	},
	"POST /v1/tasks": {
		id: "submitTask", summary: "Submits a task, durably; idempotent with an idempotencyKey.", token: "credential",
		request: submitRequest{},
		answers: withAnswers(map[int]any{200: submitResponse{}, 201: submitResponse{}, 409: problemBody{}}, commonErrors),
	},
	"POST /v1/tasks:batchSubmit": {
		id: "batchSubmitTasks", summary: "Submits many tasks of one workspace, durably, all or none.",
		token: "credential", request: batchSubmitRequest{},
		answers: withAnswers(map[int]any{200: batchSubmitResponse{}, 409: problemBody{}}, commonErrors),
	},
	"POST /v1/tasks:batchCancel": {
		id: "cancelTasks", summary: "Cancels the tasks that a filter selects, in steps that are durable one by one. " + goOn, token: "credential",
		request: cancelTasksRequest{}, answers: withAnswers(map[int]any{200: bulkResponse{}}, commonErrors),
	},
	"POST /v1/tasks:batchRetry": {
		id: "retryTasks", summary: "Opens a new round for the FAILED and CANCELLED tasks that a filter selects, in steps that are durable one by one. " + goOn,
		token: "credential", request: retryTasksRequest{}, answers: withAnswers(map[int]any{200: bulkResponse{}}, commonErrors),
	},
	"POST /v1/tasks:batchDelete": {
		id: "deleteTasks", summary: "Removes the tasks that a filter selects, in steps that are durable one by one. " + goOn, token: "credential",
		request: deleteTasksRequest{}, answers: withAnswers(map[int]any{200: bulkResponse{}}, commonErrors),
	},
	"GET /v1/tasks": {
		id: "listTasks", summary: "Returns a page of the tasks of a workspace that all parameters select, the oldest or the newest ones first. While there is a nextPageToken " +
			"there are more, even if the page is short or empty.", token: "credential", query: listRequest{},
		answers: withAnswers(map[int]any{200: listResponse{}}, commonErrors),
	},
	"POST /v1/tasks/{task_id}:retry": {
		id: "retryTask", summary: "Opens a new round for a FAILED or CANCELLED task; it is READY at once.",
		token: "credential", request: retryRequest{}, optional: true,
		answers: withAnswers(map[int]any{200: taskResponse{}, 409: problemBody{}}, commonErrors, notFoundError),
	},
	"POST /v1/tasks/{task_id}:adopt": {
		id: "adoptResult", summary: "Makes a result that came too late the outcome of a task that no worker holds and whose round has no outcome: it is COMPLETED.",
		token: "credential", request: adoptRequest{}, optional: true,
		answers: withAnswers(map[int]any{200: taskResponse{}, 409: problemBody{}}, commonErrors, notFoundError),
	},
	"DELETE /v1/tasks/{task_id}": {
		id: "deleteTask", summary: "Removes a task. One that a worker holds is refused without force.",
		token: "credential", query: deleteRequest{},
		answers: withAnswers(map[int]any{204: nil, 409: problemBody{}}, commonErrors, notFoundError), noBody: "The task is gone.",
	},
	"GET /v1/tasks/{task_id}": {
		id: "getTask", summary: "Returns a task with all its details; with waitMs as soon as it has ended, else as it is when that time is over.",
		token: "credential", query: getRequest{},
		answers: withAnswers(map[int]any{200: taskResponse{}}, commonErrors, notFoundError),
	},
	"POST /v1/tasks/{task_id}:cancel": {
		id: "cancelTask", summary: "Cancels a task.", token: "credential", request: cancelRequest{}, optional: true,
		answers: withAnswers(map[int]any{200: taskResponse{}, 409: problemBody{}}, commonErrors, notFoundError),
	},
	"GET /v1/tasks/{task_id}/events": {
		id: "watchTask", summary: "Streams past and new events of a task until it is final: server-sent events node.state, with a StateEvent, " +
			"and node.result.delta, with a DeltaEvent. Status 204: the task is final, and the reader has received everything.",
		token: "credential", header: "Last-Event-ID",
		answers: withAnswers(map[int]any{200: []any{stateEvent{}, deltaEvent{}}, 204: nil}, commonErrors,
			notFoundError), noBody: "No more events will come.",
	},
	"GET /openapi.json": {id: "getOpenAPI", summary: "This document.", answers: map[int]any{200: map[string]any{}}},
}

// goOn says how to change more tasks than one request does.
const goOn = "While there is a nextPageToken, more is to be done: send it as pageToken, with the same filter."

// fieldEnums has the values of fields that have only certain ones.
var fieldEnums = map[string][]string{
	"TaskError.category": words.CategoryNames(), "RetryPolicy.nonRetryableCategories": words.CategoryNames(),
	"ListRequest.states": words.StateNames(), "TaskFilter.states": words.StateNames(),
	"ListRequest.reasons": words.EndReasonNames(), "TaskFilter.reasons": words.EndReasonNames(),
	"ListRequest.errorCategories": words.CategoryNames(), "TaskFilter.errorCategories": words.CategoryNames(),
	"CompletedRequest.outcome": {outcomeSucceeded, outcomeFailed, outcomeCancelled},
}

// requiredFields has the required fields of requests.
var requiredFields = map[string][]string{
	"StartedRequest": {"attempt"}, "HeartbeatRequest": {"attempt"}, "CompletedRequest": {"attempt", "outcome"},
	"LeaseRequest": {"workerId", "queues"}, "SubmitRequest": {"queue"}, "BatchSubmitRequest": {"tasks"},
}

type object = map[string]any

// schemas collects the schemas of the document.
type schemas struct {
	components  map[string]object
	comments    map[string]string // of the protos, see fieldComments
	undescribed []string          // fields that no comment describes
}

// of returns the schema of a type.
func (s *schemas) of(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[instant]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{"description": "Any JSON value."}
	case reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	case reflect.TypeFor[millis]():
		return object{"type": "integer", "minimum": 0, "description": "Milliseconds."}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}
		}
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.component(t)
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return integer(t)
}

func integer(t reflect.Type) object {
	o := object{"type": "integer"}
	if t.Kind() == reflect.Uint32 || t.Kind() == reflect.Uint64 {
		o["minimum"] = 0
	}
	return o
}

func (s *schemas) component(t reflect.Type) object {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	ref := object{"$ref": "#/components/schemas/" + name}
	if s.components[name] != nil {
		return ref
	}
	properties, required := object{}, requiredFields[name]
	s.components[name] = object{"type": "object", "properties": properties}
	for _, f := range reflect.VisibleFields(t) {
		field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if field == "" {
			continue
		}
		properties[field] = s.of(f.Type)
		if values := fieldEnums[name+"."+field]; values != nil {
			limit(properties[field].(object), values)
		}
		s.describe(name, field, properties[field].(object))
		if options != "" || strings.HasSuffix(name, "Request") || name == "Capabilities" || name == "TaskFilter" {
			continue
		}
		required = append(required, field)
		if f.Type.Kind() == reflect.Pointer { // null if there is none
			properties[field].(object)["type"] = []any{properties[field].(object)["type"], "null"}
		}
	}
	if len(required) > 0 {
		slices.Sort(required)
		s.components[name]["required"] = slices.Compact(required)
	}
	return ref
}

// limit sets the values that a field, or each item of a list, may have.
func limit(schema object, values []string) {
	if items, ok := schema["items"].(object); ok {
		schema = items
	}
	schema["enum"] = values
}

// describeAPI makes the whole document.
func describeAPI(t *testing.T) object {
	t.Helper()
	s := &schemas{components: map[string]object{}, comments: fieldComments(t)}
	paths := object{}
	for route, o := range operations {
		method, path, _ := strings.Cut(route, " ")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = s.operation(path, o)
	}
	if len(s.undescribed) > 0 {
		t.Errorf("fields without a description: %s", s.undescribed)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Lessor", "version": "v1",
			"description": "Workers and producers without gRPC. Callbacks ignore unknown fields; the other requests refuse them.",
		},
		"paths": paths,
		"components": object{
			"schemas": s.components,
			"securitySchemes": object{
				"taskToken":  object{"type": "http", "scheme": "bearer", "description": "taskToken of an assignment, or the newest of a started or heartbeat"},
				"credential": object{"type": "http", "scheme": "bearer", "description": "a credential of the tenant, if the coordinator requires one"},
			},
		},
	}
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

func (s *schemas) operation(path string, o operation) object {
	out := object{"operationId": o.id, "summary": o.summary, "responses": s.responses(o)}
	var parameters []object
	for _, m := range pathParameter.FindAllStringSubmatch(path, -1) {
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	if o.header != "" {
		parameters = append(parameters, object{"name": o.header, "in": "header", "schema": object{"type": "string"}})
	}
	if o.query != nil {
		parameters = append(parameters, s.parameters(reflect.TypeOf(o.query))...)
	}
	if parameters != nil {
		out["parameters"] = parameters
	}
	if o.request != nil {
		out["requestBody"] = object{"required": !o.optional, "content": asJSON(s.of(reflect.TypeOf(o.request)))}
	}
	switch o.token {
	case "":
		out["security"] = []object{}
	case "credential": // without credentials everybody is let in
		out["security"] = []object{{o.token: []string{}}, {}}
	default:
		out["security"] = []object{{o.token: []string{}}}
	}
	return out
}

// left says of a parameter that is left out what the protos say of a field that is empty or absent.
var left = strings.NewReplacer("Empty: ", "Left out: ", "Empty means ", "Left out means ", "Absent: ", "Left out: ")

// parameters describes the parameters in the URL that are read into a struct. A list is a parameter
// that is sent several times.
func (s *schemas) parameters(t reflect.Type) (all []object) {
	_ = s.component(t)
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	properties := s.components[name]["properties"].(object)
	delete(s.components, name)
	for _, f := range reflect.VisibleFields(t) {
		field := f.Tag.Get("json")
		if field == "" { // an embedded struct, whose fields follow
			continue
		}
		schema := properties[field].(object)
		said := left.Replace(schema["description"].(string))
		delete(schema, "description")
		all = append(all, object{"name": field, "in": "query", "description": said, "schema": schema})
	}
	return all
}

func asJSON(schema object) object { return object{"application/json": object{"schema": schema}} }

var statusTexts = map[int]string{
	200: "OK", 201: "A new task.", 400: "A field is invalid; the answer names it.",
	401: "The token is missing, invalid or expired.", 403: "The token does not allow this request.",
	404: "There is no such task.",
	408: "The body did not arrive in time.", 409: "The task has ended or is in another state, or a newer attempt holds it.",
	410: "The lease has ended.", 429: "A quota is used up, or too many requests have bad tokens: try again after Retry-After.", 413: "The body or the output is too large.", 503: "No verdict: send the same request again after Retry-After.",
	500: "A fault of the coordinator; no verdict.",
}

func (s *schemas) responses(o operation) object {
	out := object{}
	for status, body := range o.answers {
		response := object{"description": statusTexts[status]}
		switch body := body.(type) {
		case nil:
			response["description"] = o.noBody
		case []any: // a stream of events
			response["content"] = object{"text/event-stream": object{"schema": object{"type": "string"}}}
			for _, data := range body {
				s.of(reflect.TypeOf(data))
			}
		default:
			response["content"] = asJSON(s.of(reflect.TypeOf(body)))
		}
		out[strconv.Itoa(status)] = response
	}
	return out
}

// H2: openapi.json describes the routes and structs of the code, and every field, mostly in the
// words of the protos. `go test ./coordinator/httpapi -run OpenAPI -update` writes it anew.
func TestOpenAPIDescribesTheHandlers(t *testing.T) {
	t.Attr("rules", "H2")
	want, err := json.MarshalIndent(describeAPI(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(document, want) {
		t.Error("openapi.json is not what the handlers are, or not what the protos say of their fields; write it anew with -update")
	}
}

// H2: exactly the routes of the mux are described.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	t.Attr("rules", "H2")
	routes := slices.Sorted(maps.Keys((&api{}).routes()))
	described := slices.Sorted(maps.Keys(operations))
	if !slices.Equal(routes, described) {
		t.Errorf("routes are\n%s\ndescribed are\n%s", strings.Join(routes, "\n"), strings.Join(described, "\n"))
	}
}
