package worker

import (
	"maps"
	"math"
	"slices"
	"time"
)

// gaugeInflight is the name of the gauge that counts the running handlers.
const gaugeInflight = "inflight"

// dueBeat is the heartbeat of a session that the writer has to send, and that first waits for its
// gauges.
type dueBeat struct {
	w *Worker
	// gauges are what the heartbeat carries; nil while none is ready to be sent. If they are empty,
	// the coordinator goes on with the last ones.
	gauges map[string]float64
	// timer runs while the heartbeat waits for its gauges.
	timer *time.Timer
}

func newDueBeat(w *Worker) *dueBeat {
	t := time.NewTimer(gaugesTimeout)
	t.Stop()
	return &dueBeat{w: w, timer: t}
}

// begin measures the gauges. If an earlier measurement still goes on, the heartbeat goes without
// them.
func (b *dueBeat) begin() {
	if b.w.measureGauges() {
		b.timer.Reset(gaugesTimeout)
	} else {
		b.gauges = map[string]float64{}
	}
}

// measured gets the gauges, also those of an earlier heartbeat that did not wait for them.
func (b *dueBeat) measured(gauges map[string]float64) {
	b.w.measured, b.gauges = nil, gauges
	b.timer.Stop()
}

// late lets the heartbeat go without gauges, because measuring them takes too long.
func (b *dueBeat) late() {
	b.w.log.Warn("measuring the disk and Config.Metrics take too long, a heartbeat goes without gauges",
		"limit", gaugesTimeout)
	b.gauges = map[string]float64{}
}

// measureGauges measures the gauges in a goroutine of its own, which then sends them to
// Worker.measured. A network disk may not answer for hours, and Config.Metrics belongs to the
// program; neither may hold up the writer, which renews the leases. It returns false if an earlier
// measurement still goes on.
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

// gauges returns what a heartbeat says about the worker and its machine (W9). It leaves out what
// the coordinator would refuse, because the coordinator would refuse the whole heartbeat and not
// renew the leases in it.
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

// validMetrics leaves out metrics whose value is not finite or whose name is not valid. If there
// are more than maxMetrics, it keeps the first ones in the order of their names.
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
