package worker

import (
	"maps"
	"math"
	"slices"
	"time"
)

// gaugeInflight is the name of the gauge that counts the running handlers.
const gaugeInflight = "inflight"

// measureGauges measures the gauges in a goroutine of its own, which then sends them to Worker.measured. A network disk may not answer for hours, and
// Config.Metrics belongs to the program; neither may hold up the writer, which renews the leases. It returns false if an earlier measurement still goes on.
func (w *Worker) measureGauges() (begun bool) {
	if w.measured != nil {
		return false
	}
	measured, gauges := make(chan map[string]float64, 1), make(map[string]float64)
	w.measured = measured
	go func() {
		defer func() { measured <- gauges }() // deferred, because Config.Metrics may end the goroutine
		gauges = w.gauges(time.Now())
	}()
	return true
}

// gauges returns what a heartbeat says about the worker and its machine (W9). It leaves out what the coordinator would refuse, because the
// coordinator would refuse the whole heartbeat and not renew the leases in it.
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

// validMetrics leaves out metrics whose value is not finite or whose name is not valid. If there are more than maxMetrics, it keeps the
// first ones in the order of their names.
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
