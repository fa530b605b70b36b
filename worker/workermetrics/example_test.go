package workermetrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workermetrics"
)

// A worker program that serves /metrics.
func Example() {
	conn, err := worker.Dial("127.0.0.1:7420")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = conn.Close() }()

	const slots = 8
	m := workermetrics.New()
	m.SetSlots(slots)
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	w, err := worker.New(conn, []string{"thumbs"}, worker.Config{Concurrency: slots, Hooks: m.Hooks(worker.Hooks{
		OnError: func(err error) { fmt.Println(err) }, // hooks of the program are called as well
	})})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Handle("resize", func(context.Context, *worker.Task) ([]byte, error) { return nil, nil })
	pages := http.NewServeMux()
	pages.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	// A program now serves the pages, and calls w.Run. The example only looks at one.
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "lessor_worker_slots") || strings.HasPrefix(line, "lessor_worker_connected") {
			fmt.Print(line)
		}
	}
	// Output:
	// lessor_worker_connected 0
	// lessor_worker_slots 8
}
