//go:build faults

package engine

import (
	"os"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// wallAt is what the wall clock says after somebody set it: off by the duration in the file that LESSOR_FAULT_WALL names. A test cannot
// set the clock of the machine.
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
