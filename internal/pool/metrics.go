package pool

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lessor-dev/lessor/internal/words"
)

// counts are the metrics of a supervisor.
type counts struct {
	starts    *prometheus.CounterVec
	ready     *prometheus.CounterVec
	failed    *prometheus.CounterVec
	callbacks *prometheus.HistogramVec
}

func newCounts() *counts {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"pool_id"})
	}
	return &counts{
		starts: counter("lessor_pool_worker_starts_total", "Processes that were started, or could not be."),
		ready:  counter("lessor_pool_workers_ready_total", "Processes that became ready."),
		failed: counter("lessor_pool_workers_failed_total",
			"Processes that failed: they said so, were not ready in time, or ended without success."),
		callbacks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lessor_pool_readiness_callback_duration_seconds",
			Help:    "Time to answer a notification, by gRPC code.",
			Buckets: []float64{0.0001, 0.001, 0.01, 0.1, 1},
		}, []string{"code"}),
	}
}

// of makes the series of a pool, so that they begin with 0.
func (c *counts) of(id string) {
	for _, v := range []*prometheus.CounterVec{c.starts, c.ready, c.failed} {
		v.WithLabelValues(id)
	}
}

// metrics returns what /metrics shows.
func (s *Supervisor) metrics() prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(
		s.counts.starts, s.counts.ready, s.counts.failed, s.counts.callbacks, states{s},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// states counts the workers by state when somebody asks.
type states struct{ *Supervisor }

var statesDesc = prometheus.NewDesc("lessor_pool_workers", "Workers by state.", []string{"pool_id", "state"}, nil)

// Describe implements prometheus.Collector.
func (s states) Describe(to chan<- *prometheus.Desc) { to <- statesDesc }

// Collect implements prometheus.Collector.
func (s states) Collect(to chan<- prometheus.Metric) {
	for _, p := range s.pools {
		in := make(map[string]int)
		for state := starting; state <= stopped; state++ {
			in[words.Name(state)] = 0
		}
		for _, w := range p.workers {
			in[words.Name(w.state())]++
		}
		for state, n := range in {
			to <- prometheus.MustNewConstMetric(statesDesc, prometheus.GaugeValue, float64(n), p.id, state)
		}
	}
}
