package gate

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Refusals of who should have shown a task token.
var (
	errNoTaskToken = refusal.New(codes.Unauthenticated, refusal.CodeToken, "no task token was sent: Authorization: Bearer <task_token>", nil)
	errTaskToken   = refusal.New(codes.Unauthenticated, refusal.CodeToken, "the task token is not of this coordinator, or has ended", nil)
)

// routeRule is who may ask for a route of the HTTP API. The zero rule is for nobody.
type routeRule struct {
	call     string // who may make this call, which is what the route does
	holder   bool   // who shows the task token of an attempt (H1)
	everyone bool
}

// routeAccess is who may ask for each route of the HTTP API (X2).
var routeAccess = map[string]routeRule{
	"POST /v1/tasks/{task_id}/started":   {holder: true},
	"POST /v1/tasks/{task_id}/heartbeat": {holder: true},
	"POST /v1/tasks/{task_id}/completed": {holder: true},
	"POST /v1/leases":                    {call: lessorv1.WorkerService_Lease_FullMethodName},
	"POST /v1/tasks":                     {call: lessorv1.TaskService_SubmitTask_FullMethodName},
	"GET /v1/tasks/{task_id}":            {call: lessorv1.TaskService_GetTask_FullMethodName},
	"POST /v1/tasks/{task_id}:cancel":    {call: lessorv1.TaskService_CancelTask_FullMethodName},
	"GET /v1/tasks/{task_id}/events":     {call: lessorv1.TaskService_WatchTask_FullMethodName},
	"GET /openapi.json":                  {everyone: true},
}

// Admit lets a request in by the rule of its route, before its body is read; see httpapi.Door.
func (g *Gate) Admit(ctx context.Context, route string) (in context.Context, leave func(), err error) {
	rule := routeAccess[route]
	switch {
	case rule.everyone:
		return ctx, func() {}, nil
	case rule.holder:
		if in, err = g.held(ctx); err != nil {
			err = g.attempts.Failed(ctx, err)
		}
		return in, func() {}, err
	}
	in, who, err := g.admit(ctx, rule.call)
	if err != nil {
		return nil, nil, g.turnAway(ctx, who, rule.call, nil, err)
	}
	in, leave = g.vigil.watch(in, who)
	return in, leave, nil
}

// held lets in who has shown a task token, as a worker of the tenant whose task it is of (H1). The lease that it is of may have ended: then
// that is what its holder is told.
func (g *Gate) held(ctx context.Context) (context.Context, error) {
	token, err := bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil || token == "" {
		return nil, errNoTaskToken
	}
	in, tenant, task, ok := g.holder(ctx, token)
	if !ok {
		return nil, errTaskToken
	}
	return as(in, holderOf(tenant, task)), nil
}

// holderOf is who has shown the token of a task.
func holderOf(tenant string, task lease.TaskID) Identity {
	return Identity{Identity: auth.Identity{Tenant: tenant, Role: auth.Worker, Subject: "holder of " + task.String()}}
}

// Request lets in a request that makes no call, by a credential of one of the roles (X2); it comes as with a call of gRPC. A role that may not is a
// *refusal.RoleError, all else a status.
func (g *Gate) Request(r *http.Request, asks auth.Role) error {
	token, err := bearer(r.Header.Values("Authorization"))
	var who Identity
	if err == nil {
		who, err = g.authenticate(token, r.TLS)
	}
	switch {
	case err != nil:
		return g.attempts.FailedRequest(r, err)
	case !who.Role.Has(asks):
		return &refusal.RoleError{What: r.URL.Path, Has: who.Role, Asks: asks}
	}
	return nil
}
