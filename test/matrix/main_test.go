package matrix

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600) // a host uses little memory, but produces much garbage
	goleak.VerifyTestMain(m)
}
