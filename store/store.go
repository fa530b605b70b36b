package store

import (
	"context"
	"io"
)

// Store keeps the records of one partition. All goroutines may use it.
type Store interface {
	// Commit applies all of b or nothing, and returns nil once it is durable: it survives a power cut from then on (A6).
	// b may be reset and used again when Commit has returned.
	//
	// An error does not mean that b was not applied, but that nobody knows. The caller must give no verdict for what b
	// decided, stop serving and exit; the truth is what the next start reads. A store that failed once refuses all
	// further calls with the same *CommitError. The only other error is ErrClosed, and then nothing was applied.
	//
	// A store on a local disk does not give up a commit that ctx ends: it could not tell how far it had come.
	Commit(ctx context.Context, b *Batch) error

	// Begin starts a commit of several batches, the first of which need not wait for the last: see Tx. It waits until the one before is written.
	Begin(ctx context.Context) (Tx, error)

	// View calls fn with one consistent state, the newest one, and returns fn's error. It may wait until what fn has seen is durable; before it returns, fn must let
	// nothing of that out. fn must be short (a long one keeps dead pages alive, and can hold up a commit that grows the store) and must not call Commit.
	View(fn func(Reader) error) error

	// Snapshot writes a consistent copy of what is durable to w while commits go on, and returns its size in bytes. The copy
	// holds the key that signs leases: who reads it can forge them (A11).
	Snapshot(w io.Writer) (int64, error)

	// Stats tells how large the store is.
	Stats() Stats

	// Close waits for calls under way and lets the store go. Closing again does nothing.
	Close() error
}

// Tx is one commit, in steps: so that the next one is prepared while the disk is busy with this one. It is for one goroutine, and ends with Sync, with an error of
// Write, or with Rollback.
type Tx interface {
	// Apply adds the changes of b, which must stay as it is until Sync has returned. What is wrong with it is told by Write.
	Apply(b *Batch)

	// Write hands all of it to the disk, once what was committed before is durable: no two commits can be lost together. From then on the next Begin returns.
	Write() error

	// Sync returns once all of it is durable. The errors of Write and Sync are those of Store.Commit, and mean the same.
	Sync() error

	// Rollback forgets all of it. It must not be called after Write.
	Rollback()
}

// Reader reads one state of a store. The slices that it hands out belong to the store: they must not be changed, and not
// be used after the View that gave the Reader has returned.
type Reader interface {
	// Get returns the value under key, nil if there is none. An empty value is not nil.
	Get(ks Keyspace, key []byte) []byte

	// Scan calls fn with each key in [from, to), in order, until fn returns false. A nil from is the first key of the
	// keyspace, a nil to is behind the last one.
	Scan(ks Keyspace, from, to []byte, fn func(key, value []byte) bool) error
}

// Stats is the size of a store in bytes.
type Stats struct {
	// FileBytes is the size of the file; it never shrinks.
	FileBytes int64
	// FreeBytes of it hold nothing and are used before the file grows.
	FreeBytes int64
	// MaxBytes is the limit of FileBytes; 0 is none.
	MaxBytes int64
}
