package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lessor-dev/lessor/internal/httpserver"
)

// monitoringPages returns the pages of a command that is not a coordinator: /metrics, which shows
// the collectors along with the process and its version, and /healthz (is the process alive?).
func monitoringPages(own ...prometheus.Collector) *http.ServeMux {
	registry := prometheus.NewRegistry()
	build := prometheus.GaugeOpts{
		Name: "lessor_build_info", Help: "Always 1; the label has the version.",
		ConstLabels: prometheus.Labels{"version": buildVersion()},
	}
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(build, func() float64 { return 1 }),
	)
	registry.MustRegister(own...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerText(w, http.StatusOK, "ok") })
	return mux
}

func answerText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the caller is gone
}

// servePages serves pages on a listener until stop is called.
func servePages(lis net.Listener, pages http.Handler, log *slog.Logger) (stop func()) {
	server := httpserver.New(pages, log.Handler())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) }) // http.ErrServerClosed
	return func() {
		_ = server.Close()
		serving.Wait()
	}
}
