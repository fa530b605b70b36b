package httpapi

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
)

// Config is what the API needs from the coordinator.
type Config struct {
	// Calls makes calls of the services of lessor.v1 for callers that Door has admitted.
	Calls grpc.ClientConnInterface
	// Misread makes a call whose request could not be read, with the part of the request that is
	// known. So the call is counted, audited and logged like any other refused call. The error is a
	// status: INVALID_ARGUMENT with the given code and what the caller is told, or an earlier
	// refusal of the call, for example by a quota.
	Misread func(ctx context.Context, method string, request proto.Message, code, told string) error
	// Door admits or refuses requests.
	Door Door
	// MaxBody is the longest body that is read, in bytes.
	MaxBody int64
	// Open says that no credentials are required. Host is the name by which workers know this
	// machine. For both see asksUs.
	Open bool
	Host string
	// Rejected is called for a malformed report before the caller is answered, so that the report
	// is added to the history of the task (T10). Its error is a status, and means that there is no
	// verdict.
	Rejected func(ctx context.Context, of Holder, said lease.Kind, wrong *lease.FieldError) error
	// Logger gets a line about each request that is refused before it becomes a call. Bodies and
	// tokens are never logged.
	Logger *slog.Logger
	// Answered is called after every request, with its route as Routes and the mux name it ("" if
	// there is none), and the status of the answer.
	Answered func(route string, status int)
}

// Door decides who may use a route (X2).
type Door interface {
	// Admit admits a request for a route, or returns a status as the error. task is the id in its
	// path, "" if the route has none. The caller's credentials are in the metadata and the peer of
	// ctx, as in a gRPC call. Calls for the caller must use the context in: it is done when the
	// credential ends, and has a Holder if the route is for holders of task tokens. leave must be
	// called at the end of the request.
	Admit(ctx context.Context, route, task string) (in context.Context, leave func(), err error)
}

// Holder is a caller with a valid task token, and the lease of the token, which may have ended
// (H1).
type Holder struct {
	lease.Holding
	LeaseID string
}

type holderKey struct{}

// WithHolder returns a copy of ctx that carries a caller with a valid task token.
func WithHolder(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// api serves all routes.
type api struct {
	Config
	mux     *http.ServeMux
	ofTask  map[string]handler // the routes that are not in mux, see task
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.WorkerServiceClient
	long    turn.Places // of long bodies that are being parsed
}

// handler answers a request that was admitted, or returns the problem to answer with.
type handler func(w http.ResponseWriter, r *http.Request) *problem

// New adds the routes to mux, and returns the handler for all requests, those for other patterns of
// mux included.
func New(cfg Config, mux *http.ServeMux) http.Handler {
	a := &api{
		Config:  cfg,
		mux:     mux,
		ofTask:  map[string]handler{},
		tasks:   lessorv1.NewTaskServiceClient(cfg.Calls),
		workers: lessorv1.NewWorkerServiceClient(cfg.Calls),
		long:    turn.NewPlaces(),
	}
	for route, handle := range a.routes() {
		if _, verb, ok := strings.Cut(route, taskPath); ok && !strings.Contains(verb, "/") {
			a.ofTask[route] = handle
			continue
		}
		mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, route, handle) })
	}
	mux.HandleFunc("/v1/tasks/{id_and_verb}", a.task)
	// A web page that somebody opens in a browser must not be able to submit tasks to a coordinator
	// on the same machine.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, errCrossOrigin) }))
	return a.observed(a.asksUs(guard.Handler(http.HandlerFunc(a.serve))))
}

// Routes lists the routes of the API.
func Routes() []string { return slices.Sorted(maps.Keys((&api{}).routes())) }

// routes returns every route; openapi.json describes the same ones.
func (a *api) routes() map[string]handler {
	return map[string]handler{
		"POST /v1/tasks/{task_id}/started":   a.callback(a.started),
		"POST /v1/tasks/{task_id}/heartbeat": a.callback(a.heartbeat),
		"POST /v1/tasks/{task_id}/completed": a.callback(a.completed),
		"POST /v1/leases":                    a.lease,
		"POST /v1/tasks":                     a.submit,
		"GET /v1/tasks/{task_id}":            a.get,
		"GET /v1/tasks":                      a.list,
		"POST /v1/tasks:batchSubmit":         a.batchSubmit,
		"POST /v1/tasks:batchCancel":         a.cancelMany,
		"POST /v1/tasks:batchRetry":          a.retryMany,
		"POST /v1/tasks:batchDelete":         a.removeMany,
		"DELETE /v1/tasks/{task_id}":         a.remove,
		"POST /v1/tasks/{task_id}:cancel":    a.cancel,
		"POST /v1/tasks/{task_id}:retry":     a.retry,
		"POST /v1/tasks/{task_id}:adopt":     a.adopt,
		"GET /v1/tasks/{task_id}/events":     a.events,
		"GET /openapi.json":                  a.openAPI,
	}
}

// taskPath is the path of a task. The path of some routes has a verb behind it.
const taskPath = "/v1/tasks/{task_id}"

// task finds the route of a request for a task, with or without a verb. The mux cannot do it: its
// patterns do not match a part of a segment, so it could neither cut the verb off the id nor know
// which methods a path has.
func (a *api) task(w http.ResponseWriter, r *http.Request) {
	id, verb, cut := strings.Cut(r.PathValue("id_and_verb"), ":")
	path := taskPath
	if cut {
		path += ":" + verb
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if route := method + " " + path; a.ofTask[route] != nil {
		r.Pattern = route
		r.SetPathValue("task_id", id)
		a.answer(w, r, route, a.ofTask[route])
		return
	}
	r.Pattern = "" // so that the metrics count the request as one without a route
	var allowed []string
	for _, methods := range []string{"DELETE", "GET, HEAD", "POST"} {
		if first, _, _ := strings.Cut(methods, ","); a.ofTask[first+" "+path] != nil {
			allowed = append(allowed, methods)
		}
	}
	if len(allowed) == 0 {
		a.refuse(w, r, errNoRoute)
		return
	}
	a.refuseMethod(w, r, strings.Join(allowed, ", "))
}
