package standby

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Start is what a standby has.
type Start struct {
	At      records.Position // every commit up to this one; zero: nothing
	Written lease.Wall       // when the coordinator wrote the commit of At; 0 for a copy that is not complete
	// Copied is of a copy that is not complete. Of what was not changed since it began, it has the
	// records before this one; nil: everything.
	Copied *Cursor
}

// Cursor is a place in the order of all records: by keyspace, then by key.
type Cursor struct {
	Keyspace store.Keyspace
	Key      []byte
}

// Sink takes what a Follower sends: Begin first and once, then changes and marks. An error ends the
// Follower.
type Sink interface {
	Begin(Begin) error
	// Changes belong to the next mark. They are valid until Changes returns.
	Changes([]store.Op) error
	Mark(Mark) error
}

// Begin says what is to come.
type Begin struct {
	Format     uint32 // of the store
	Copy       bool   // the whole store follows; otherwise what is missing beyond what the standby said it has
	StoreBytes int64  // about how much is to come, if Copy is true
}

// Mark says that the changes so far make a state, or a part of one while the store is being copied.
type Mark struct {
	At       records.Position
	Complete bool     // all of the store has been copied
	Copied   *Cursor  // how far the copy is now; nil: as far as before
	Sums     []uint64 // what the checksums of all keyspaces must be; nil: not compared this time
}
