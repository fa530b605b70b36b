package standby

import (
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Sink takes what a Follower sends: Begin first and once, then changes and marks. An error ends the Follower.
type Sink interface {
	Begin(Begin) error
	// Changes belong to the next mark. They are valid until Changes returns.
	Changes([]store.Op) error
	Mark(Mark) error
}

// Begin says what is to come.
type Begin struct {
	Format     uint32 // of the store
	Copy       bool   // the whole store follows; otherwise what has changed since the position that the standby has
	StoreBytes int64  // about how much is to come, if Copy is true
}

// Mark says that the changes so far make a state, or a part of one while the store is being copied.
type Mark struct {
	At       records.Position
	Complete bool     // all of the store has been copied
	Sums     []uint64 // what the checksums of all keyspaces must be; nil: not compared this time
}
