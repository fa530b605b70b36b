package coordinator

import "github.com/prometheus/client_golang/prometheus"

// sessionCounters are counted by the sessions themselves.
type sessionCounters struct {
	missed   prometheus.Counter
	dropped  prometheus.Counter
	resets   *prometheus.CounterVec
	resends  prometheus.Counter
	repeats  prometheus.Counter
	gapsIn   prometheus.Counter
	gapsOut  prometheus.Counter
	families []prometheus.Collector
}

func newSessionCounters() sessionCounters {
	var c sessionCounters
	family := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		c.families = append(c.families, vec)
		return vec
	}
	counter := func(name, help string) prometheus.Counter { return family(name, help).WithLabelValues() }
	c.missed = counter("lessor_heartbeats_missed_total", "Heartbeats of sessions that did not come when they were due.")
	c.dropped = counter("lessor_feedback_dropped_total", "Items of feedback that were dropped, since more came than could be passed on.")
	c.resets = family("lessor_session_resets_total", "Sessions that the coordinator ended, by the code that it gave.", "code")
	c.resends = counter("lessor_frame_resends_total", "Frames that went out again: unacknowledged, missed, or lost with their stream.")
	c.repeats = counter("lessor_frame_repeats_total", "Frames of workers that had been taken before.")
	gaps := family("lessor_frame_gaps_total", "Gaps that were told in the sequence of frames, by their direction.", "dir")
	c.gapsIn, c.gapsOut = gaps.WithLabelValues("in"), gaps.WithLabelValues("out")
	return c
}
