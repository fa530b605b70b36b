package main

import (
	"io"
	"net"
	"strings"
	"testing"
)

// The timeout of a wait also ends one whose coordinator does not answer at all, and has its own exit code then, too.
func TestWaitForASilentCoordinator(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, args := range [][]string{{"t1"}, {"--run-id", "r"}} {
		var stderr strings.Builder
		args = append([]string{"task", "wait", "--addr", silent.Addr().String(), "--timeout", "20ms"}, args...)
		code := run(args, streams{out: io.Discard, err: &stderr})
		if want := "error: after 20ms, the coordinator has not answered\n"; code != exitTimeout || stderr.String() != want {
			t.Errorf("%v: exit code %d, %q; want %d, %q", args, code, stderr.String(), exitTimeout, want)
		}
	}
}
