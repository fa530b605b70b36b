package coordinator

import (
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newHTTPServer serves /metrics, /healthz (the process lives) and /readyz (it takes requests); with profiles also /debug/pprof/.
func newHTTPServer(registry *prometheus.Registry, ready func() bool, log *slog.Logger, profiles bool) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ready() {
			answer(w, http.StatusOK, "ready\n")
			return
		}
		answer(w, http.StatusServiceUnavailable, "not serving\n")
	})
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // also heap, goroutine and the like
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	}
	return &http.Server{
		Handler: mux, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the caller is gone
}
