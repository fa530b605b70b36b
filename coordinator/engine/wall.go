//go:build !faults

package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// wallAt returns the time of the wall clock.
func wallAt(t time.Time) lease.Wall { return lease.WallOf(t) }
