package worker

import (
	"maps"
	"math"
	"slices"
	"time"
)

// gaugeInflight is the name of the gauge that counts the running handlers.
const gaugeInflight = "inflight"

// gaugesInTime returns the gauges, or none if they cannot be measured within gaugesTimeout: then the coordinator goes on with the last ones. A network
// disk may not answer for hours, and Config.Metrics belongs to the program; neither may hold up the writer, which renews the leases. While one
// measurement hangs, no other one begins.
func (w *Worker) gaugesInTime() map[string]float64 {
	none := make(map[string]float64)
	select {
	case w.measuring <- struct{}{}:
	default:
		return none
	}
	measured := make(chan map[string]float64, 1)
	go func() {
		defer func() { <-w.measuring }()
		measured <- w.gauges(time.Now())
	}()
	timer := time.NewTimer(gaugesTimeout)
	defer timer.Stop()
	select {
	case gauges := <-measured:
		return gauges
	case <-timer.C:
		w.log.Warn("measuring the disk and Config.Metrics take too long, heartbeats carry no gauges meanwhile", "limit", gaugesTimeout)
		return none
	}
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
