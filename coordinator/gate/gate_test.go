package gate

import (
	"strings"
	"testing"
)

// A panic of a stream's handler goes on, with its stack, to where panics are caught.
func TestPanicOfAStream(t *testing.T) {
	defer func() {
		if p, ok := recover().(string); !ok || !strings.Contains(p, "dropped") || !strings.Contains(p, "TestPanicOfAStream") {
			t.Errorf("recovered %q, want the panic with its stack", p)
		}
	}()
	_ = leaveBehind(t.Context(), func() error { panic("dropped") })
}
