package coordinator

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
)

// The warnings take no callback away: the one for a coordinator that stood still is called, too,
// also for a time that is too short for a warning.
func TestWarningsLeaveTheCallbackForStandstills(t *testing.T) {
	var log bytes.Buffer
	var got []time.Duration
	events := newMetrics().events()
	events.StoodStill = func(by time.Duration) { got = append(got, by) }
	events = withWarnings(events, slog.New(slog.NewTextHandler(&log, nil)))
	spans := []time.Duration{engine.SlowCommit - 1, engine.SlowCommit}
	for _, by := range spans {
		events.StoodStill(by)
	}
	if n := strings.Count(log.String(), "stood still"); n != 1 || !slices.Equal(got, spans) {
		t.Errorf("after standstills of %v, the log has %d warnings and the callback got %v, want 1 warning and all of them", spans, n, got)
	}
}

// The warnings need no callback below them, and each callback is still called.
func TestWarningsWithAndWithoutCallbacks(t *testing.T) {
	called := 0
	for _, below := range []engine.Events{{}, {
		Committed: func(int, time.Duration) { called++ }, StoodStill: func(time.Duration) { called++ },
		WallClockSet: func(time.Duration) { called++ },
		Changed:      func(*lease.Task, *lease.Task) { called++ },
	}} {
		events := withWarnings(below, slog.New(slog.DiscardHandler))
		events.Committed(1, time.Hour)
		events.StoodStill(time.Hour)
		events.WallClockSet(time.Hour)
		events.Changed(nil, nil)
	}
	if called != 4 {
		t.Errorf("%d callbacks were called, want all four", called)
	}
}

// A jump of the wall clock is in the log and in the metrics.
func TestJumpOfTheWallClockIsToldToTheOperator(t *testing.T) {
	var log bytes.Buffer
	m := newMetrics()
	withWarnings(m.events(), slog.New(slog.NewTextHandler(&log, nil))).WallClockSet(-time.Hour)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "by=-1h0m0s") {
		t.Errorf("the log has %q, want a warning with the hour", log.String())
	}
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == "lessor_wall_clock_jumps_total" {
			if n := family.GetMetric()[0].GetCounter().GetValue(); n != 1 {
				t.Errorf("the metric counts %v jumps, want 1", n)
			}
			return
		}
	}
	t.Error("there is no metric lessor_wall_clock_jumps_total")
}

// The time from a grant to its report is not negative in the metrics, even if the wall clock was
// set back meanwhile: the sum of a histogram never falls.
func TestLatencyWhenTheWallClockIsSetBack(t *testing.T) {
	m := newMetrics()
	granted := lease.WallOf(time.Now().Add(time.Hour))
	m.events().LeaseEnded(&lease.Task{Lease: &lease.Lease{GrantedAt: granted}}, lease.Reported)
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != "lessor_result_latency_seconds" {
			continue
		}
		if h := family.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 0 {
			t.Errorf("%d reports took %v s in the metrics, want one of 0 s", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("there is no metric lessor_result_latency_seconds")
}
