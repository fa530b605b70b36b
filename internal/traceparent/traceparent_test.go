package traceparent_test

import (
	"testing"

	"github.com/lessor-dev/lessor/internal/traceparent"
)

const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A traceparent is valid if it has version 00, lower-case hexadecimal digits, and neither id is
// zero. What was read is written as it was.
func TestForm(t *testing.T) {
	for s, want := range map[string]bool{
		good:                     true,
		good[:len(good)-1] + "0": true,
		"":                       false,
		good + "-":               false,
		"01" + good[2:]:          false,
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01":  false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1":  false,
	} {
		c, ok := traceparent.Parse(s)
		if ok != want {
			t.Errorf("%q: valid is %v, want %v", s, ok, want)
		}
		if ok && traceparent.Format(c) != s {
			t.Errorf("%q is written as %q", s, traceparent.Format(c))
		}
		if ok && c.IsSampled() != traceparent.Sampled(s) {
			t.Errorf("%q: sampled is %v and %v", s, c.IsSampled(), traceparent.Sampled(s))
		}
	}
}

// The span of a context with a traceparent has it as its parent; a malformed one changes nothing.
func TestContext(t *testing.T) {
	if got := traceparent.Of(traceparent.With(t.Context(), good)); got != good {
		t.Errorf("got %q, want %q", got, good)
	}
	if got := traceparent.Of(traceparent.With(t.Context(), good+"x")); got != "" {
		t.Errorf("got %q of a malformed one, want none", got)
	}
}
