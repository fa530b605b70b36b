package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/keyindex"
	"github.com/lessor-dev/lessor/store/timerindex"
)

// Config configures an engine. The zero value is usable.
type Config struct {
	// Limits of sizes; zero: lease.DefaultLimits.
	Limits lease.Limits
	// Recovery says what happens to leases that were granted before this start.
	Recovery Recovery
	// Events are the callbacks of observers.
	Events Events
	// ResourceWait is how long tasks wait for the worker that holds their resources; 0:
	// lease.DefaultResourceWait (W12).
	ResourceWait time.Duration
	// DiskFull reports whether the disk is so full that no new tasks may be made. nil: it is never
	// too full.
	DiskFull func() bool
	// DiskSpent reports whether the disk is so full that what is left must be kept for the reports
	// of tasks that run, so that none may be granted. nil: it never is. When it no longer is, the
	// loop notices that within idleTick.
	DiskSpent func() bool
	// StoreGone reports whether the file of the store was moved or removed: the next start would
	// not find what is made now, so no tasks are made or granted. nil: it never is. It is called
	// often. When it no longer is, the loop notices that within idleTick.
	StoreGone func() bool
	// MaxTasks returns how many tasks that have not ended a tenant may have; a submit beyond that
	// is refused with ErrTaskLimit (X5). nil: there is no limit.
	MaxTasks func(tenant string) int
	// Wall returns what the wall clock shows when that of the machine shows t. nil: the same. It is
	// called at each reading of the clocks.
	Wall func(t time.Time) time.Time
	// KeySegment is how many entries of idempotency keys become a segment of their index; 0:
	// keyindex.DefaultSegmentSize.
	KeySegment int
	// FakeTime: the engine runs on the fake time of testing/synctest, which passes only while the
	// loop sleeps. So the loop cannot stand still (A8), and does not wake every tick to notice it.
	FakeTime bool
	// TimersSwept is how many timers must come until those in memory are put in order on disk; 0:
	// timerindex.DefaultSize.
	TimersSwept int
}

// fill replaces what is zero.
func (c *Config) fill() {
	if c.Limits == (lease.Limits{}) {
		c.Limits = lease.DefaultLimits()
	}
	if c.ResourceWait == 0 {
		c.ResourceWait = lease.DefaultResourceWait
	}
	if c.KeySegment == 0 {
		c.KeySegment = keyindex.DefaultSegmentSize
	}
	if c.TimersSwept == 0 {
		c.TimersSwept = timerindex.DefaultSize
	}
	if c.DiskFull == nil {
		c.DiskFull = func() bool { return false }
	}
	if c.DiskSpent == nil {
		c.DiskSpent = func() bool { return false }
	}
	if c.StoreGone == nil {
		c.StoreGone = func() bool { return false }
	}
	if c.Wall == nil {
		c.Wall = sameWall
	}
	c.Events.fill()
}

func sameWall(t time.Time) time.Time { return t }

// Recovery says what happens to leases that were granted before a start.
type Recovery uint8

const (
	// KeepLeases keeps them live (A9).
	KeepLeases Recovery = iota
	// InvalidateLeases ends all of them with COORDINATOR_RECOVERED (A9).
	InvalidateLeases
	// RestoredStore is for a store that was restored from a backup. It works like InvalidateLeases,
	// and also covers leases that were granted after the backup. The store has no record of those
	// leases (A11).
	RestoredStore
)
