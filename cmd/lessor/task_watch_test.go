package main

import "testing"

// A watch that the loss of the coordinator has cut off says how to go on, if there is something to
// go on from.
func TestWatchThatIsCutOff(t *testing.T) {
	for _, c := range []struct {
		code int
		seen uint64
		want string
	}{
		{exitUnavailable, 7, "continue with --after 7 once the coordinator answers"},
		{exitUnavailable, 0, "wait"},
		{exitFailed, 7, "wait"},
	} {
		if got := cutOff(fail(c.code, "wait", "away"), c.seen); got.hint != c.want || got.code != c.code {
			t.Errorf("exit code %d after event %d: exit code %d and hint %q, want %q", c.code, c.seen, got.code, got.hint, c.want)
		}
	}
}
