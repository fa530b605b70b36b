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
	"github.com/lessor-dev/lessor/lease"
)

// Config is what the API stands on.
type Config struct {
	// Calls makes calls of lessor.v1 for those whom the door has let in.
	Calls grpc.ClientConnInterface
	// Misread makes a call of which the request could not be read, with what is known of it: so it is counted, audited and logged as any call that is refused.
	// The error is a status: INVALID_ARGUMENT with the code, or why the call was refused before that.
	Misread func(ctx context.Context, method string, request proto.Message, code string) error
	// Door lets requests in.
	Door Door
	// MaxBody is the longest body that is read, in bytes.
	MaxBody int64
	// Open says that nobody is asked for credentials, and Host by which name workers know this machine; see asksUs.
	Open bool
	Host string
	// Rejected is told of a report of which the form is bad, and what of it, before its caller is: so it is in the history of the task (T10). The error is
	// a status; then there is no verdict.
	Rejected func(ctx context.Context, of Holder, said lease.Kind, wrong *lease.FieldError) error
	// Logger takes what is refused before it becomes a call. Bodies and tokens never reach it.
	Logger *slog.Logger
	// Answered is told of every request: its route, as Routes and the mux name it, empty where there is none, and the status of the answer.
	Answered func(route string, status int)
}

// Door says who may come in (X2).
type Door interface {
	// Admit lets a request of a route in. What was shown is in the metadata and the peer of ctx, as in a call of gRPC. The context that it returns
	// is that of calls by who was let in: it ends with the credential, and has a holder where the route is for holders of task tokens. leave must be
	// called at the end of the request. The error is a status.
	Admit(ctx context.Context, route string) (in context.Context, leave func(), err error)
}

// Holder is who has shown a task token, and the lease that it is of, which may have ended (H1).
type Holder struct {
	lease.Holding
	LeaseID string
}

type holderKey struct{}

// WithHolder is ctx of who has shown a task token.
func WithHolder(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// api answers all routes.
type api struct {
	Config
	mux     *http.ServeMux
	tasks   lessorv1.TaskServiceClient
	workers lessorv1.WorkerServiceClient
}

// handler answers a request that was let in, or says why not.
type handler func(w http.ResponseWriter, r *http.Request) *problem

// New adds the routes to a mux, and returns the handler of all that the mux has.
func New(cfg Config, mux *http.ServeMux) http.Handler {
	a := &api{Config: cfg, mux: mux, tasks: lessorv1.NewTaskServiceClient(cfg.Calls), workers: lessorv1.NewWorkerServiceClient(cfg.Calls)}
	for route, handle := range a.routes() {
		if !strings.Contains(route, verbMark) {
			mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, route, handle) })
		}
	}
	mux.HandleFunc(verbPattern, a.verb)
	// A page that somebody looks at in a browser must not submit tasks to a coordinator on the loopback.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.refuse(w, r, errCrossOrigin) }))
	return a.observed(a.asksUs(guard.Handler(http.HandlerFunc(a.serve))))
}

// Routes lists the routes of the API.
func Routes() []string { return slices.Sorted(maps.Keys((&api{}).routes())) }

// routes lists every route; openapi.json has the same.
func (a *api) routes() map[string]handler {
	return map[string]handler{
		"POST /v1/tasks/{task_id}/started":   a.callback(a.started),
		"POST /v1/tasks/{task_id}/heartbeat": a.callback(a.heartbeat),
		"POST /v1/tasks/{task_id}/completed": a.callback(a.completed),
		"POST /v1/leases":                    a.lease,
		"POST /v1/tasks":                     a.submit,
		"GET /v1/tasks/{task_id}":            a.get,
		"POST /v1/tasks/{task_id}:cancel":    a.cancel,
		"GET /v1/tasks/{task_id}/events":     a.events,
		"GET /openapi.json":                  a.openAPI,
	}
}

// A pattern of the mux cannot name a part of a segment, so that a verb is cut off its id here.
const (
	verbMark    = "{task_id}:"
	verbPattern = "POST /v1/tasks/{task_and_verb}"
)

func (a *api) verb(w http.ResponseWriter, r *http.Request) {
	id, verb, _ := strings.Cut(r.PathValue("task_and_verb"), ":")
	route := "POST /v1/tasks/" + verbMark + verb
	handle, known := a.routes()[route]
	if !known {
		r.Pattern = "" // what is no route has no name in the metrics
		a.refuse(w, r, errNoRoute)
		return
	}
	r.Pattern = route
	r.SetPathValue("task_id", id)
	a.answer(w, r, route, handle)
}
