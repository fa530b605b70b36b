package bench

import (
	"slices"
	"testing"
)

// A rate names its lowest limit, a time names all its limits. The report leaves out what was not
// measured, but not flushes that were counted as 0.
func TestReport(t *testing.T) {
	r, c := &Report{}, &Config{Producers: []int{4}, Backlogs: []int{70}}
	r.fill(c.limitMetrics(), c.resultMetrics(), map[string][]float64{
		"store_submit_500": {90, 100, 110}, "wire_frames": {400},
		"wire_round_trip": {1}, "store_commit_1": {2},
		"enqueue_bulk": {40, 60, 50}, cpuOf("enqueue_bulk"): {7, 8, 9}, flushesOf("enqueue_bulk"): {0, 0, 0},
		"latency_verdict_p50": {12}, forBacklog("drain_backlog", 70): {5},
	})
	if len(r.Limits) != len(c.limitMetrics()) || len(r.Results) != 3 {
		t.Fatalf("%d limits and %d results, want %d and 3", len(r.Limits), len(r.Results), len(c.limitMetrics()))
	}
	bulk, verdict, drained := r.Results[0], r.Results[1], r.Results[2]
	if bulk.Median != 50 || bulk.Share != 0.5 || !slices.Equal(bulk.Limits, []string{"store_submit_500"}) || bulk.CPU.Median != 8 || bulk.Flushes == nil {
		t.Errorf("enqueue_bulk = %+v, want median 50, half of store_submit_500, with 8 of CPU and 0 flushes", bulk)
	}
	if verdict.Bound != 6 || verdict.Share != 0.5 || len(verdict.Limits) != 4 || verdict.CPU != nil || verdict.Flushes != nil {
		t.Errorf("latency_verdict_p50 = %+v, want bound 6 of 4 limits and share 0.5, without CPU and flushes", verdict)
	}
	if drained.Bound != 0 || drained.Share != 0 || drained.Limits != nil {
		t.Errorf("drain_backlog_b70 = %+v, want no limit: the drain that it is compared with was not measured", drained)
	}
}

// Each metric has its own name, and each limit that a result is compared with is a metric that is
// measured.
func TestLimitsAreMetrics(t *testing.T) {
	c, known := &Config{Producers: []int{1, 64, frameSize}, Backlogs: []int{100, 500}}, map[string]bool{}
	for _, m := range slices.Concat(c.limitMetrics(), c.resultMetrics()) {
		if known[m.name] {
			t.Errorf("two metrics have the name %s", m.name)
		}
		known[m.name] = true
	}
	for _, m := range c.resultMetrics() {
		for _, limit := range m.limits {
			if !known[limit] {
				t.Errorf("%s is compared with %s, which is not measured", m.name, limit)
			}
		}
	}
}
