package main

import (
	"log/slog"
	"testing"
)

// `lessor run` runs its lines even if the memory or the disk of the machine is nearly full: its embedded coordinator never holds back work for that.
func TestRunOnFullMachine(t *testing.T) {
	if h := embeddedConfig(slog.New(slog.DiscardHandler)).Sessions.Health; h.MemPct <= 100 || h.DiskPct <= 100 {
		t.Errorf("no new work from %v %% of memory or %v %% of the disk in use, want limits above 100 %%", h.MemPct, h.DiskPct)
	}
}
