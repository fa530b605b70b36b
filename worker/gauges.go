package worker

import (
	"maps"
	"math"
	"slices"
	"time"
)

// gaugeInflight is the number of handlers that run.
const gaugeInflight = "inflight"

// gauges are what a heartbeat says of the worker and its machine (W9). What the coordinator would refuse is left out: with it
// the whole heartbeat would be refused, and the leases in it not be renewed.
func (w *Worker) gauges(now time.Time) map[string]float64 {
	gauges := w.meter.Measure(now)
	gauges[gaugeInflight] = float64(w.inflight())
	if w.cfg.Metrics != nil {
		gauges = w.cfg.Metrics(gauges)
	}
	return fittingMetrics(gauges)
}

func (w *Worker) inflight() int {
	w.lock()
	defer w.unlock()
	return w.mu.handlers
}

// fittingMetrics leaves out what has no finite value or no proper name, and what is too much, by name.
func fittingMetrics(metrics map[string]float64) map[string]float64 {
	fitting := make(map[string]float64, min(len(metrics), maxMetrics))
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		value := metrics[name]
		if len(fitting) < maxMetrics && checkName("metric", name) == nil && isFinite(value) {
			fitting[name] = value
		}
	}
	return fitting
}

func isFinite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }
