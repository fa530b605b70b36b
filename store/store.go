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
	// After an error nobody knows whether b was applied. The caller must give no verdict for what b decided, stop serving
	// and exit; the truth is what the next start reads. A store that failed once refuses all further calls with the same
	// *CommitError. The only other error is ErrClosed, and then nothing was applied.
	//
	// A store on a local disk goes on with a commit even if ctx ends: it could not tell how far the commit had come.
	Commit(ctx context.Context, b *Batch) error

	// Begin starts a commit of several batches, which are added one by one: see Tx. It waits until the commit before is written.
	Begin(ctx context.Context) (Tx, error)

	// View calls fn with one consistent state, the newest one, and returns fn's error. That state may not be durable yet: View returns only once it is, and
	// fn must not tell anybody before that what it has seen. fn must be short (a long one keeps dead pages alive, and can hold up a commit that grows the
	// store) and must not call Commit.
	View(fn func(Reader) error) error

	// Snapshot writes a consistent copy of what is durable to w while commits go on, and returns its size in bytes. The copy
	// holds the key that signs leases: whoever reads it can forge them (A11).
	Snapshot(w io.Writer) (int64, error)

	// Stats tells how large the store is.
	Stats() Stats

	// Close waits for calls under way and lets the store go. Closing again does nothing.
	Close() error
}

// Tx is one commit, made in steps so that the next commit can be prepared while the disk is busy with this one. Call Apply for each batch, then Write,
// then Sync. A Tx is for one goroutine, and ends with Sync, with an error of Write, or with Rollback.
type Tx interface {
	// Apply adds the changes of b, which must not change until Sync has returned. Write returns what is wrong with them.
	Apply(b *Batch)

	// Write hands everything to the disk, once the commit before is durable, so that no two commits can be lost together. After that the next Begin can
	// return.
	Write() error

	// Sync returns once everything is durable. The errors of Write and Sync are those of Store.Commit, and mean the same.
	Sync() error

	// Rollback forgets everything. It must not be called after Write.
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
