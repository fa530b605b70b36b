package main

import (
	"log/slog"
	"testing"
)

// A machine whose memory or disk is nearly full does not keep `lessor run` from its own lines.
func TestRunOnFullMachine(t *testing.T) {
	if h := embeddedConfig(slog.New(slog.DiscardHandler)).Sessions.Health; h.MemPct <= 100 || h.DiskPct <= 100 {
		t.Errorf("no new work from %v %% of memory and %v %% of the disk on, want never", h.MemPct, h.DiskPct)
	}
}
