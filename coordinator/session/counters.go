package session

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// counters are the metrics that sessions increment.
type counters struct {
	missed   prometheus.Counter
	dropped  prometheus.Counter
	resets   *prometheus.CounterVec
	resends  prometheus.Counter
	repeats  prometheus.Counter
	gapsIn   prometheus.Counter
	gapsOut  prometheus.Counter
	packages *prometheus.CounterVec
	families []prometheus.Collector
}

func newCounters() counters {
	var c counters
	family := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		c.families = append(c.families, vec)
		return vec
	}
	counter := func(name, help string) prometheus.Counter { return family(name, help).WithLabelValues() }
	c.missed = counter("lessor_heartbeats_missed_total", "Session heartbeats that did not arrive when they were due.")
	c.dropped = counter("lessor_feedback_dropped_total",
		"Feedback items that were dropped because more came than could be passed on.")
	c.resets = family("lessor_session_resets_total", "Sessions that the coordinator ended, by code.", "code")
	for _, code := range []string{
		refusal.CodeSeqGap, refusal.CodeTimeout, refusal.CodeStaleBinding, refusal.CodeKicked,
		refusal.CodeStopping, refusal.CodeToken,
	} {
		c.resets.WithLabelValues(code) // rate() needs a first sample of 0
	}
	c.resends = counter("lessor_frame_resends_total",
		"Frames that were sent again because they were unacknowledged, missed, or lost with their stream.")
	c.repeats = counter("lessor_frame_repeats_total",
		"Frames that workers sent again although the coordinator had them already.")
	gaps := family("lessor_frame_gaps_total", "Gaps reported in the sequence of frames, by direction.", "dir")
	c.gapsIn, c.gapsOut = gaps.WithLabelValues("in"), gaps.WithLabelValues("out")
	c.packages = family("lessor_package_operations_total",
		"Packages that workers were asked to install or uninstall, by what became of it.", "op", "outcome")
	for _, remove := range []bool{false, true} {
		for _, done := range []bool{false, true} {
			c.packageOperations(remove, done)
		}
	}
	return c
}

// packageOperations returns the counter of the installs, or removals, that were done or have
// failed.
func (c *counters) packageOperations(remove, done bool) prometheus.Counter {
	op, outcome := "install", "failed"
	if remove {
		op = "uninstall"
	}
	if done {
		outcome = "done"
	}
	return c.packages.WithLabelValues(op, outcome)
}

// Collectors returns the metrics of all sessions.
func (r *Registry) Collectors() []prometheus.Collector {
	return append(r.families, healthCollector{r})
}

// healthCollector counts sessions by their health, at each scrape.
type healthCollector struct{ registry *Registry }

var sessionsByHealth = prometheus.NewDesc("lessor_sessions", "Open sessions of workers, by health.",
	[]string{"health"}, nil)

// Describe implements prometheus.Collector.
func (healthCollector) Describe(to chan<- *prometheus.Desc) { to <- sessionsByHealth }

// Collect sends the count of each health, including zeros, so that an alert on any of them finds a
// value.
func (c healthCollector) Collect(to chan<- prometheus.Metric) {
	counts := c.registry.healths()
	for number, name := range lessorv1.WorkerHealth_name {
		if is := lessorv1.WorkerHealth(number); is != lessorv1.WorkerHealth_WORKER_HEALTH_UNSPECIFIED {
			to <- prometheus.MustNewConstMetric(sessionsByHealth, prometheus.GaugeValue, float64(counts[is]),
				strings.TrimPrefix(name, "WORKER_HEALTH_"))
		}
	}
}
