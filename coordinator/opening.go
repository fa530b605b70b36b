package coordinator

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/lessor-dev/lessor/coordinator/preauth"
)

// AnswerProbes answers on the HTTP listener of a coordinator whose store is still being opened, which may take minutes if it has to be checked first: that
// the process lives (/healthz), and that nothing is served yet. Otherwise somebody who restarts processes that do not answer would begin the check again and
// again. stop gives the listener back; connections that come meanwhile wait for whoever accepts next.
func AnswerProbes(cfg Config, lis *net.TCPListener) (stop func()) {
	cfg.fill()
	server := newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			answer(w, http.StatusOK, "ok\n")
			return
		}
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "not serving: the store is being opened\n")
	}), cfg.Logger)
	limited := preauth.NewConnLimiter(cfg.Connections, cfg.Logger).Listener(lent{lis})
	if cfg.TLS != nil {
		limited = tls.NewListener(limited, withProtocol(cfg.TLS, "http/1.1"))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(limited) // http.ErrServerClosed
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-ended
		_ = lis.SetDeadline(time.Time{})
	}
}

// lent is a listener that stays open when a server closes it. It only stops to accept.
type lent struct{ *net.TCPListener }

// Close ends Accept.
func (l lent) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
