package coordinator

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// X1: an HTTP connection is closed after maxConnectionAge, as gRPC connections are.
func TestHTTPConnectionsHaveAMaximumAge(t *testing.T) {
	t.Attr("rules", "X1")
	synctest.Test(t, func(t *testing.T) {
		server := newHTTPServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler), nil)
		ctx := server.ConnContext(t.Context(), nil)
		for _, want := range []string{"", "", "close"} {
			w := httptest.NewRecorder()
			server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			if got := w.Header().Get("Connection"); got != want {
				t.Errorf("the header Connection is %q, want %q", got, want)
			}
			time.Sleep(maxConnectionAge / 2)
		}
	})
}

// X5: failed TLS handshakes, which anybody can cause, do not go into the log of the HTTP server,
// but to who counts them. A panic of a handler is logged as a warning.
func TestLogOfTheHTTPServer(t *testing.T) {
	t.Attr("rules", "X5")
	var log bytes.Buffer
	failed := ""
	server := newHTTPServer(http.NotFoundHandler(), slog.New(slog.NewTextHandler(&log, nil)),
		func(from, problem string) { failed += from + " " + problem + ";" })
	server.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:4711: EOF")
	server.ErrorLog.Print("http: TLS handshake error from [2001:db8::1]:4711: tls: bad record MAC: oh")
	if want := "192.0.2.1:4711 EOF;[2001:db8::1]:4711 tls: bad record MAC: oh;"; failed != want || log.Len() > 0 {
		t.Errorf("told of %q, and the log has %q; want %q, and none", failed, &log, want)
	}
	server.ErrorLog.Print("http: panic serving 192.0.2.1:4711: oh")
	if want := `level=WARN msg="http: panic serving 192.0.2.1:4711: oh"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log is %q, want %q in it", &log, want)
	}
}

// deafWriter is an answer whose client does not read.
type deafWriter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // of the request
}

func (w deafWriter) Write([]byte) (int, error) {
	<-w.ctx.Done()
	return 0, w.ctx.Err()
}

// X5: scrapes are answered on at most half of the processors at a time. One whose client does not
// read its answer holds up no other, nor does one whose client has left.
func TestScrapesTakeTurns(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		most := max(1, runtime.GOMAXPROCS(0)/2)
		var running, answered atomic.Int64
		next := make(chan struct{})
		handler := inTurn(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			running.Add(1)
			<-next
			running.Add(-1)
			_, _ = w.Write([]byte("text"))
			answered.Add(1)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		scrape := func(w http.ResponseWriter) {
			go handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
		}
		for range most {
			scrape(deafWriter{httptest.NewRecorder(), ctx})
		}
		synctest.Wait()
		for range 4 * most {
			scrape(httptest.NewRecorder())
		}
		for done := range 3 * most {
			synctest.Wait()
			if got := running.Load(); got != int64(most) || answered.Load() != int64(done) {
				t.Fatalf("%d scrapes are under way and %d are done, want %d and %d", got, answered.Load(), most, done)
			}
			next <- struct{}{}
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(next)
		synctest.Wait()
		if got := answered.Load(); got != int64(4*most) {
			t.Errorf("%d scrapes were answered, want %d: the rest have left", got, 4*most)
		}
	})
}
