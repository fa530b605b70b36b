//go:build !faults

package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// wallAt is what the wall clock says.
func wallAt(t time.Time) lease.Wall { return lease.WallOf(t) }
