package coordinator

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/httpapi"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/internal/httpstatus"
	"github.com/lessor-dev/lessor/web"
)

// roleCheck checks the role of callers who read the operators' pages over HTTP.
type roleCheck struct {
	gate *gate.Gate
	log  *slog.Logger
	// challenge says how a caller without a credential is to send one; empty: as a bearer token.
	challenge string
	// refuse answers who is refused; nil: with the text.
	refuse web.Refuse
	// aboutAll says that the pages are about all tenants: see gate.Gate.Request.
	aboutAll bool
}

// ofAll returns the check for pages that are about all tenants.
func (c roleCheck) ofAll() roleCheck {
	c.aboutAll = true
	return c
}

// inBrowser returns the check for pages that people open in a browser, which asks them for the
// token as a password. The name beside it does not matter. When an open page reloads by itself, it
// asks nobody: the page says that the token has ended.
func (c roleCheck) inBrowser(asks auth.Role) func(http.Handler, web.Refuse) http.Handler {
	return func(next http.Handler, refuse web.Refuse) http.Handler {
		c := c
		c.refuse = refuse
		asking := c
		asking.challenge = `Basic realm="Lessor: the token is the password", charset="UTF-8"`
		opened, reloaded := asking.require(asks, next), c.require(asks, next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, token, ok := r.BasicAuth(); ok {
				r = r.Clone(r.Context())
				r.Header.Set("Authorization", "Bearer "+token)
			}
			if r.Header.Get("Lessor-Reload") != "" { // page.js sends it
				reloaded.ServeHTTP(w, r)
			} else {
				opened.ServeHTTP(w, r)
			}
		})
	}
}

// require returns a handler that calls next if the caller has one of the roles in asks, and is of
// the right tenant (X2), and answers with an error otherwise. If the credential of the caller ends
// during the request, it closes the connection without the rest of the answer (X3).
func (c roleCheck) require(asks auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := httpapi.AsCall(r)
		route := strings.TrimSuffix(r.Pattern, "{$}") // people read it
		path := strings.TrimPrefix(route, "GET ")
		in, leave, err := c.gate.Request(ctx, path, asks, c.aboutAll)
		if err == nil {
			defer leave()
			serveUntilEnded(w, r.WithContext(in), next)
			return
		}
		c.turnAway(ctx, w, r, path, route, err)
	})
}

// turnAway answers a request that the gate did not let in. Only a caller whose credential is at
// fault is asked for another one.
func (c roleCheck) turnAway(
	ctx context.Context, w http.ResponseWriter, r *http.Request, path, route string, err error,
) {
	told, level := status.Convert(err), slog.LevelInfo
	code := httpstatus.Of(told.Code())
	switch code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", cmp.Or(c.challenge, "Bearer"))
	case http.StatusTooManyRequests:
		level = slog.LevelDebug
	}
	fields := []any{
		"type", route, "peer.address", r.RemoteAddr, "status", code,
		"code", refusal.CodeOf(err), "error", told.Message(),
	}
	c.log.Log(ctx, level, "request refused", append(fields, logging.ExtractFields(ctx)...)...)
	if c.refuse != nil { // by the page, whose path is a pattern
		c.refuse(w, r, code, strings.Replace(told.Message(), path+" ", "this page ", 1))
		return
	}
	answer(w, code, told.Message()+"\n")
}

// reader returns who looks at a page that was admitted with this context.
func (c *Coordinator) reader(ctx context.Context) web.Reader {
	who := gate.Identify(ctx)
	if c.gate.Open() || who.Tenant == "" {
		return web.Reader{}
	}
	return web.Reader{Tenant: who.Tenant, Subject: who.Subject, Role: who.Role.String(), Until: who.Until}
}

// serveUntilEnded serves a request until the credential of its caller ends. Then it closes the
// connection, even if the handler has already written, because the server may still hold that back,
// and even if the handler waits for a client that does not read. A client that has only closed its
// side gets the answer.
func serveUntilEnded(w http.ResponseWriter, r *http.Request, next http.Handler) {
	ctx := r.Context()
	stop := context.AfterFunc(ctx, func() {
		if auth.Ended(ctx) != nil {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now()) // a writer without deadlines does not wait
		}
	})
	next.ServeHTTP(w, r)
	if !stop() && auth.Ended(ctx) != nil {
		panic(http.ErrAbortHandler)
	}
}
