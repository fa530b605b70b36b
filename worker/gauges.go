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
	return validMetrics(gauges)
}

func (w *Worker) inflight() int {
	w.lock()
	defer w.unlock()
	return w.mu.activeHandlers
}

// validMetrics leaves out what has no finite value or no proper name, and what is too much, by name.
func validMetrics(metrics map[string]float64) map[string]float64 {
	valid := make(map[string]float64, min(len(metrics), maxMetrics))
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		value := metrics[name]
		if len(valid) < maxMetrics && checkName("metric", name) == nil && isFinite(value) {
			valid[name] = value
		}
	}
	return valid
}

func isFinite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }
