//go:build faults

package engine

import (
	"os"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// wallAt returns the time of the wall clock plus the duration in the file that LESSOR_FAULT_WALL names. A test uses it to simulate a change of the
// wall clock, because it cannot set the clock of the machine.
func wallAt(t time.Time) lease.Wall {
	path := os.Getenv("LESSOR_FAULT_WALL")
	if path == "" {
		return lease.WallOf(t)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	shift, err := time.ParseDuration(string(text))
	if err != nil {
		panic(err)
	}
	return lease.WallOf(t).Add(shift)
}
