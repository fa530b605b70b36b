package coordinator

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
)

// The warnings take no callback away: the one for a coordinator that stood still is called, too, also for a time that is too short for a warning.
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
