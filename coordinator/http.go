package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/internal/httpserver"
	"github.com/lessor-dev/lessor/internal/turn"
)

// newHTTPServer returns a server for the handler (package httpserver). It closes a connection after
// the first answer that it sends after maxConnectionAge, as the gRPC server does, so that client
// certificates are checked again. failed is told of each failed TLS handshake.
func newHTTPServer(handler http.Handler, log *slog.Logger, failed func(from, problem string)) *http.Server {
	server := httpserver.New(closeOld(handler), handshakeFilter{log.Handler(), failed})
	server.DisableGeneralOptionsHandler = true
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(preauth.WithConn(ctx, conn), beganKey{}, time.Now())
	}
	return server
}

// beganKey is the context key of the time when a connection was accepted.
type beganKey struct{}

// closeOld closes a connection after an answer if the connection is older than maxConnectionAge.
func closeOld(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if began, ok := r.Context().Value(beganKey{}).(time.Time); ok && time.Since(began) >= maxConnectionAge {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// handshakeFilter filters the log of net/http, which reports panics and failed TLS handshakes: it
// passes the latter to failed. Anybody can cause them at any rate.
type handshakeFilter struct {
	slog.Handler
	failed func(from, problem string)
}

// Handle passes on a line that is about a handshake.
func (f handshakeFilter) Handle(ctx context.Context, line slog.Record) error {
	if about, ok := strings.CutPrefix(line.Message, "http: TLS handshake error from "); ok {
		from, problem, _ := strings.Cut(about, ": ")
		f.failed(from, problem)
		return nil
	}
	return f.Handler.Handle(ctx, line)
}

// operatorMux serves /metrics, /healthz (is the process alive?) and /readyz (does it accept
// requests?). If profiles is set, it serves /debug/pprof/ too. Metrics and profiles cover all
// tenants together and name none: if there is a host tenant, they are for it alone. The health
// checks need no credential.
func operatorMux(registry *prometheus.Registry, ready readiness, roles roleCheck, profiles bool) *http.ServeMux {
	mux, roles := http.NewServeMux(), roles.ofAll()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: registry})
	mux.Handle("GET /metrics", roles.require(auth.Viewer|auth.Operator, inTurn(metrics)))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		code, text := ready.status()
		answer(w, code, text)
	})
	if profiles {
		// also serves heap, goroutine and other profiles
		mux.Handle("GET /debug/pprof/", roles.require(auth.Operator, http.HandlerFunc(pprof.Index)))
		mux.Handle("GET /debug/pprof/profile", roles.require(auth.Operator, http.HandlerFunc(pprof.Profile)))
		mux.Handle("GET /debug/pprof/trace", roles.require(auth.Operator, http.HandlerFunc(pprof.Trace)))
	}
	return mux
}

// inTurn returns a handler whose requests are answered a few at a time. It is for one that computes
// for milliseconds in code that is not ours (docs/decisions/0031-long-calls-yield.md). An answer is
// sent when it is complete, so a client that does not read holds up nobody.
func inTurn(next http.Handler) http.Handler {
	places := turn.NewPlaces()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if places.Take(r.Context()) != nil {
			return // the caller is gone
		}
		kept := keptAnswer{ResponseWriter: w}
		func() {
			defer places.Give()
			next.ServeHTTP(&kept, r)
		}()
		_, _ = w.Write(kept.body.Bytes()) // the caller is gone
	})
}

// keptAnswer keeps the body of an answer.
type keptAnswer struct {
	http.ResponseWriter
	body bytes.Buffer
}

// Write adds to the body.
func (k *keptAnswer) Write(b []byte) (int, error) { return k.body.Write(b) }

// stuckCommit is how long a commit may take before /readyz reports that the coordinator is not
// ready. During a commit nothing is acknowledged.
const stuckCommit = 10 * time.Second

// readiness holds the conditions that /readyz checks.
type readiness struct {
	serving, storeGone, diskFull, diskSpent func() bool
	commitPending                           func() time.Duration
}

// status returns the HTTP status and a text for people. With a full disk the coordinator is ready:
// it still serves everything except submits, and even if it grants nothing, workers must reach it
// to report.
func (r readiness) status() (code int, text string) {
	slow := r.commitPending()
	switch {
	case !r.serving():
		return http.StatusServiceUnavailable, "not serving\n"
	case r.storeGone():
		return http.StatusServiceUnavailable, "not ready: " + storeGone + "\n"
	case slow >= stuckCommit:
		return http.StatusServiceUnavailable,
			fmt.Sprintf("not ready: the disk does not answer; a commit has been under way for %v\n",
				slow.Round(time.Second))
	case slow >= engine.SlowCommit:
		return http.StatusOK, fmt.Sprintf("ready, but the disk is slow: a commit has been under way for %v\n",
			slow.Round(time.Second))
	case r.diskSpent():
		return http.StatusOK, "ready, but the disk of the coordinator is almost full: new tasks are refused and none are granted until there is room; running tasks continue\n"
	case r.diskFull():
		return http.StatusOK, "ready, but " + engine.ErrDiskFull.Error() + "\n"
	}
	return http.StatusOK, "ready\n"
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the caller is gone
}
