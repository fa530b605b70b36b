package gate

import (
	"strings"
	"testing"
)

// A panic in the handler of a stream reaches the place where panics are caught, with its stack.
func TestPanicOfAStream(t *testing.T) {
	defer func() {
		if p, ok := recover().(string); !ok || !strings.Contains(p, "dropped") || !strings.Contains(p, "TestPanicOfAStream") {
			t.Errorf("recovered %q, want the panic with its stack", p)
		}
	}()
	_ = runUntilRevoked(t.Context(), func() error { panic("dropped") })
}
