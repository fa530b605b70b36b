package coordinator

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/preauth"
)

// AnswerProbes serves health checks on the HTTP listener of a coordinator while its store is being
// opened. Opening may take minutes if the store has to be checked first. The answers say that the
// process is alive (/healthz), and that it serves nothing yet. Without them, a supervisor that
// restarts processes which do not answer would restart the check of the store again and again. stop
// gives the listener back; new connections then wait in the backlog until the next Accept.
func AnswerProbes(cfg Config, lis *net.TCPListener) (stop func()) {
	cfg.fill()
	limiter := preauth.NewConnLimiter(cfg.Connections, false, cfg.Logger)
	server := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			answer(w, http.StatusOK, "ok\n")
			return
		}
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "not serving: the store is being opened\n")
	}), cfg.Logger, limiter.HandshakeFailed)
	limited := limiter.Listener(lent{lis})
	if cfg.TLS != nil {
		limited = tls.NewListener(limited, withProtocol(cfg.TLS, "http/1.1"))
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(limited) }) // http.ErrServerClosed
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		serving.Wait()
		_ = lis.SetDeadline(time.Time{})
	}
}

// lent is a listener that stays open when an HTTP server closes it. Only its Accept ends.
type lent struct{ *net.TCPListener }

// Close ends Accept.
func (l lent) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
