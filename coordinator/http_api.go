package coordinator

import (
	"context"
	"net/http"
	"net/url"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/httpapi"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/lease"
)

// Refusals of who should have shown a task token.
var (
	errNoTaskToken = refusal.New(codes.Unauthenticated, refusal.CodeToken, "no task token was sent: Authorization: Bearer <task_token>", nil)
	errTaskToken   = refusal.New(codes.Unauthenticated, refusal.CodeToken, "the task token is not of this coordinator, or has ended", nil)
)

// newHTTP is the HTTP listener's server: the API in plain JSON, whose calls go to the services inside, and what operators read.
func (c *Coordinator) newHTTP(inside *local, g *gate, m *metrics) *http.Server {
	var host string
	if u, err := url.Parse(c.cfg.Callbacks.URL); err == nil { // else it was refused
		host = u.Hostname()
	}
	api := httpapi.New(httpapi.Config{
		Open:     c.door.open(),
		Host:     host,
		Calls:    inside,
		Door:     &httpDoor{gate: g, engine: c.engine, tokens: c.edge.assigner.Tokens},
		MaxBody:  int64(c.cfg.maxMessage()),
		Logger:   c.cfg.Logger,
		Answered: m.answered,
	}, forOperators(m.registry, readiness{c.ready.Load, c.cfg.DiskFull, c.engine.CommitPending}, c.door, c.cfg.Pprof))
	return newHTTPServer(api, c.cfg.Logger)
}

// httpDoor lets in requests over HTTP, before their bodies are read.
type httpDoor struct {
	*gate
	engine *engine.Engine
	tokens convert.Tokens
}

// Admit lets a request in by the rule of its route; see httpapi.Door.
func (d *httpDoor) Admit(ctx context.Context, route string) (in context.Context, leave func(), err error) {
	rule := routeAccess[route]
	switch {
	case rule.everyone:
		return ctx, func() {}, nil
	case rule.holder:
		if in, err = d.holder(ctx); err != nil {
			err = d.attempts.Failed(ctx, err)
		}
		return in, func() {}, err
	}
	in, who, err := d.admit(ctx, rule.call)
	if err != nil {
		return nil, nil, d.turnAway(ctx, who, rule.call, nil, err)
	}
	in, leave = d.vigil.watch(in, who)
	return in, leave, nil
}

// holder lets in who has shown a task token, as a worker of the tenant whose task it is of (H1). The lease that it is of may have ended: then
// that is what its holder is told.
func (d *httpDoor) holder(ctx context.Context) (context.Context, error) {
	token, err := bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil || token == "" {
		return nil, errNoTaskToken
	}
	c, ok := d.tokens.Open(d.engine.Now(), token)
	if !ok {
		return nil, errTaskToken
	}
	ctx = httpapi.WithHolder(ctx, httpapi.Holder{Holding: c.Holding, LeaseID: d.engine.LeaseID(c.Holding)})
	return as(ctx, holderOf(c.Tenant, c.Ticket.Task)), nil
}

// holderOf is who has shown the token of a task.
func holderOf(tenant string, task lease.TaskID) identity {
	return identity{Identity: auth.Identity{Tenant: tenant, Role: auth.Worker, Subject: "holder of " + task.String()}}
}
