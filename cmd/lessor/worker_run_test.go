package main

import (
	"context"
	"io"
	"testing"
	"time"
)

// A type may be named twice, for example on the command line and in a list that a script makes.
func TestTypeNamedTwice(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	run := workerRunCmd{
		Queue: []string{"q"}, Type: []string{"b", "a", "b"}, Spool: t.TempDir(), DrainTimeout: time.Second, Command: []string{"true"},
		Capabilities: capabilities{Jobs: 1}, Log: logging{Level: "error"},
	}
	run.Addr = "127.0.0.1:1"
	if err := run.Run(&app{ctx: stopped, stopNow: t.Context(), streams: streams{out: io.Discard, err: io.Discard}}); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}
