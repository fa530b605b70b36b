package main

import (
	"log/slog"

	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workermetrics"
)

// serveMetrics makes the hooks of a worker count, and serves what they count on --metrics-listen
// until stop is called.
func (c workerRunCmd) serveMetrics(cfg *worker.Config, log *slog.Logger) (stop func(), err error) {
	if c.MetricsListen == "" {
		return func() {}, nil
	}
	lis, err := listenTCP("metrics-listen", c.MetricsListen)
	if err != nil {
		return nil, err
	}
	log.Info("serving", "metrics", lis.Addr().String())
	m := workermetrics.New()
	m.SetSlots(cfg.Concurrency)
	cfg.Hooks = m.Hooks(cfg.Hooks)
	return servePages(lis, monitoringPages(m), log), nil
}
