package gate

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Refusals of requests that need a task token.
var (
	errNoTaskToken = refusal.New(codes.Unauthenticated, refusal.CodeToken,
		"no task token was sent; send the header Authorization: Bearer <task_token>", nil)
	errTaskToken = refusal.New(codes.Unauthenticated, refusal.CodeToken,
		"the task token was not issued by this coordinator, it has expired, or the credential of its worker was revoked", nil)
	errNotTheToken = refusal.New(codes.Unauthenticated, refusal.CodeToken,
		"this is a credential, not the task token of the assignment; send the header Authorization: Bearer <task_token>", nil)
)

// routeRule says who may use a route of the HTTP API. The zero rule admits nobody.
type routeRule struct {
	call     string // everyone who may make this gRPC call, which does the same as the route
	holder   bool   // everyone who has the task token of an attempt (H1)
	everyone bool
}

// routeAccess says who may use each route of the HTTP API (X2).
var routeAccess = map[string]routeRule{
	"POST /v1/tasks/{task_id}/started":   {holder: true},
	"POST /v1/tasks/{task_id}/heartbeat": {holder: true},
	"POST /v1/tasks/{task_id}/completed": {holder: true},
	"POST /v1/leases":                    {call: lessorv1.WorkerService_Lease_FullMethodName},
	"POST /v1/tasks":                     {call: lessorv1.TaskService_SubmitTask_FullMethodName},
	"GET /v1/tasks/{task_id}":            {call: lessorv1.TaskService_GetTask_FullMethodName},
	"GET /v1/tasks":                      {call: lessorv1.TaskService_ListTasks_FullMethodName},
	"POST /v1/tasks:batchSubmit":         {call: lessorv1.TaskService_BatchSubmitTasks_FullMethodName},
	"POST /v1/tasks:batchCancel":         {call: lessorv1.TaskService_BatchCancelTasks_FullMethodName},
	"POST /v1/tasks:batchRetry":          {call: lessorv1.TaskService_BatchRetryTasks_FullMethodName},
	"POST /v1/tasks:batchDelete":         {call: lessorv1.TaskService_BatchDeleteTasks_FullMethodName},
	"DELETE /v1/tasks/{task_id}":         {call: lessorv1.TaskService_DeleteTask_FullMethodName},
	"POST /v1/tasks/{task_id}:cancel":    {call: lessorv1.TaskService_CancelTask_FullMethodName},
	"POST /v1/tasks/{task_id}:retry":     {call: lessorv1.TaskService_RetryTask_FullMethodName},
	"POST /v1/tasks/{task_id}:adopt":     {call: lessorv1.TaskService_AdoptResult_FullMethodName},
	"GET /v1/tasks/{task_id}/events":     {call: lessorv1.TaskService_WatchTask_FullMethodName},
	"GET /openapi.json":                  {everyone: true},
}

// Admit admits or refuses a request by the rule of its route, before the body of the request is
// read; see httpapi.Door.
func (g *Gate) Admit(ctx context.Context, route, task string) (in context.Context, leave func(), err error) {
	rule := routeAccess[route]
	switch {
	case rule.everyone:
		return ctx, func() {}, nil
	case rule.holder:
		if in, err = g.admitHolder(ctx); err != nil {
			err = g.failed(ctx, err)
		}
		return in, func() {}, err
	}
	in, who, err := g.admit(ctx, rule.call)
	if err != nil {
		// stands for the request of any audited call of a route: all have their task id alike
		known := &lessorv1.CancelTaskRequest{TaskId: task}
		return nil, nil, g.turnAway(ctx, who, rule.call, known, err)
	}
	in, leave = g.calls.track(in, who)
	return in, leave, nil
}

// admitHolder admits a caller with a valid task token, as a worker of the tenant of that task (H1).
// The lease of the token may have ended; then the handler says so in its answer.
func (g *Gate) admitHolder(ctx context.Context) (context.Context, error) {
	token, _ := bearer(metadata.ValueFromIncomingContext(ctx, "authorization")) // "" also if the header is malformed
	if token == "" {
		return nil, errNoTaskToken
	}
	in, said, ok := g.openToken(ctx, token)
	switch {
	case !ok && auth.LooksLikeToken(token):
		return nil, errNotTheToken
	case !ok:
		return nil, errTaskToken
	}
	logging.AddFields(ctx, logging.Fields{"tenant", said.Tenant, "id", said.Task.String()})
	who := holderOf(said)
	if g.withdrawn(who) {
		return nil, errTaskToken
	}
	preauth.CredentialShown(ctx)
	return withIdentity(in, who), nil
}

// holderOf returns the identity of a caller who has a valid token of a task.
func holderOf(said TaskToken) Identity {
	return Identity{
		Identity: auth.Identity{
			Tenant:  said.Tenant,
			Role:    auth.Worker,
			Subject: "holder of " + said.Task.String(),
		},
		heldUnder: said.Credential,
	}
}

// Recheck checks again that the credential or task token with which a request was admitted has not
// ended. The error is a gRPC status.
func (g *Gate) Recheck(ctx context.Context) error {
	if _, err := g.identify(ctx); err != nil {
		return g.failed(ctx, err)
	}
	return nil
}

// Request checks an HTTP request for a path that is not a gRPC call, such as /metrics: the caller
// needs one of the roles in asks (X2). aboutAll means that the path is about all tenants: if there
// is a host tenant, only its callers are let in. Request reads the credential from the metadata and
// the peer of ctx. The context that it returns has the caller for Identify, and ends with the
// credential (X3); leave must be called at the end of the request. The error is a gRPC status.
func (g *Gate) Request(
	ctx context.Context, path string, asks auth.Role, aboutAll bool,
) (in context.Context, leave func(), err error) {
	who, err := g.caller(ctx)
	logCaller(ctx, who)
	switch {
	case err != nil:
		err = g.failed(ctx, err)
	case !who.Role.Has(asks):
		err = refusal.Status(&refusal.RoleError{What: path, Has: who.Role, Asks: asks})
	case aboutAll && !g.SeesAll(who):
		err = refusal.Status(&refusal.HostError{What: path})
	default:
		in, leave = g.calls.track(withIdentity(ctx, who), who)
		return in, leave, nil
	}
	return nil, nil, g.turnAway(ctx, who, path, nil, err)
}
