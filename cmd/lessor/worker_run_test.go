package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/internal/execworker"
)

// A type may be named twice, for example on the command line and in a list that a script makes.
func TestTypeNamedTwice(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	run := workerRunCmd{
		Queue: []string{"q"}, Type: []string{"b", "a", "b"}, Spool: t.TempDir(), DrainTimeout: time.Second,
		Command:      []string{"true"},
		Capabilities: capabilities{Jobs: 1}, Log: logging{Level: "error"},
	}
	run.Addr = "127.0.0.1:1"
	if err := run.Run(&app{ctx: stopped, stopNow: t.Context(), streams: streams{out: io.Discard, err: io.Discard}}); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// Without --installer a worker installs nothing. With it, the program is run, and the second signal
// kills it.
func TestInstallerOfAWorker(t *testing.T) {
	t.Attr("rules", "W13")
	a := &app{ctx: t.Context(), stopNow: t.Context()}
	if got, err := (workerRunCmd{}).installer(a, nil); got != nil || err != nil {
		t.Errorf("installer = %v and %v, want none", got, err)
	}
	got, err := workerRunCmd{Installer: "true"}.installer(a, nil)
	if i, ok := got.(execworker.Installer); err != nil || !ok || i.Command[0] != "true" || i.Kill != t.Context().Done() {
		t.Errorf("installer = %v and %v, want one that runs true until the second signal", got, err)
	}
}
