package coordinator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

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
