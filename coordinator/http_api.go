package coordinator

import (
	"context"
	"net/http"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/httpapi"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/web"
)

// newHTTP returns the server of the HTTP listener. It serves the JSON API and the page, which call
// the services from within the process, and the metrics, health checks and profiles for operators.
func (c *Coordinator) newHTTP(within *local) *http.Server {
	roles := roleCheck{gate: c.gate, log: c.cfg.Logger}
	mux := operatorMux(c.metrics.registry,
		readiness{c.ready.Load, c.cfg.StoreGone, c.cfg.DiskFull, c.cfg.DiskSpent, c.commitPending}, roles, c.cfg.Pprof)
	mux.Handle("GET /metrics/queues", roles.require(auth.Viewer|auth.Operator,
		inTurn(queueMetrics{lessorv1.NewAdminServiceClient(within)})))
	web.Register(mux, web.Config{
		Calls: within, Admit: roles.inBrowser(auth.Viewer | auth.Operator),
		Reader: c.reader, Logger: c.cfg.Logger,
	})
	api := httpapi.New(httpapi.Config{
		Open:     c.gate.Open(),
		Host:     c.cfg.Callbacks.host(),
		Calls:    within,
		Misread:  within.refuseUnreadable,
		Door:     c.gate,
		MaxBody:  int64(c.cfg.maxMessage()),
		Logger:   c.cfg.Logger,
		Rejected: c.malformedOverHTTP,
		Answered: c.metrics.answered,
	}, mux)
	return newHTTPServer(c.closingEnded(api), c.cfg.Logger, c.connLimiter.HandshakeFailed)
}

// malformedOverHTTP is Services.RejectMalformed for a caller whose credential may have ended while
// the body was read.
func (c *Coordinator) malformedOverHTTP(
	ctx context.Context, of httpapi.Holder, said lease.Kind, wrong *lease.FieldError,
) error {
	if err := c.gate.Recheck(ctx); err != nil {
		return err
	}
	return c.services.RejectMalformed(ctx, of.Ticket.Task, of.LeaseID, said, wrong)
}

// closingEnded closes a connection after an answer if its client certificate has expired, because a
// client can present a new certificate only on a new connection.
func (c *Coordinator) closingEnded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && c.gate.CertificateEnded(httpapi.AsCall(r)) {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// tokenOpener returns the function that opens task tokens (H1).
func tokenOpener(eng *engine.Engine, tokens convert.Tokens) gate.TokenOpener {
	return func(ctx context.Context, token string) (in context.Context, said gate.TaskToken, ok bool) {
		c, ok := tokens.Open(eng.Now(), token)
		if !ok {
			return nil, gate.TaskToken{}, false
		}
		in = httpapi.WithHolder(ctx, httpapi.Holder{Holding: c.Holding, LeaseID: eng.LeaseID(c.Holding)})
		return in, gate.TaskToken{Tenant: c.Tenant, Task: c.Ticket.Task, Credential: c.Credential}, true
	}
}
