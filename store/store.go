package store

import (
	"context"
	"io"
	"time"
)

// Store keeps the records of one partition. Several goroutines may use it at the same time.
//
// An open store has one owner. If another process opens the store, either that fails, or from then
// on every commit of the first process fails and changes nothing. That alone is not enough to
// replace a coordinator that still runs: what it answers from memory, a refusal for example,
// reaches no store. See docs/decisions/0033.
type Store interface {
	// Commit applies all of b or nothing. It returns nil once b is durable, that is, survives a
	// power cut (A6). The caller may reset b and use it again when Commit has returned.
	//
	// After an error nobody knows whether b was applied. The caller must give no verdict for what b
	// decided, stop serving and exit; the next start reads what the store really contains. A store
	// that failed once refuses all further calls with the same *CommitError. The only other error
	// is ErrClosed; then nothing was applied.
	//
	// A store on a local disk finishes a commit even if ctx ends, because it could not tell how far
	// the commit had come.
	//
	// Every store takes what the engine commits at once: mostly a few thousand changed tasks, each
	// with several records, and some 16 MiB plus a frame or two (coordinator/engine/batch.go). With
	// the highest limits of sizes (S7), a key has some 8 KiB and a value somewhat more than 64 MiB.
	Commit(ctx context.Context, b *Batch) error

	// Begin begins a commit of several batches, which are added one by one: see Tx. It waits until
	// the commit before is written. Its errors are those of Commit; a store may also return them
	// only from Write or Sync.
	Begin(ctx context.Context) (Tx, error)

	// View calls fn with the newest state, which is consistent, and returns the error of fn. That
	// state may not be durable yet. View returns only once it is; before that, fn must not pass on
	// what it has read. If the store could not read or has failed, View returns that error instead
	// of the one of fn. fn must be short: the store keeps the state that fn sees while it runs, so
	// freed space cannot be reused, and a commit that grows the store may have to wait. fn must not
	// call Commit. View may be called between Begin and Write of a commit, whose changes it does
	// not see.
	View(fn func(Reader) error) error

	// Snapshot writes a consistent copy of a durable state to w, and returns its size in bytes.
	// Commits can run at the same time. The copy contains the key that signs leases: whoever reads
	// the copy can forge leases (A11).
	Snapshot(w io.Writer) (int64, error)

	// Stats returns the size of the store.
	Stats() Stats

	// Close waits for running calls and closes the store. A second Close does nothing.
	Close() error
}

// Peeker is a Store that can be read without a wait.
type Peeker interface {
	// Peek is View, but returns although the state that it has shown may not be durable yet.
	// Nothing may follow from what fn has read but changes of a later commit, and what is told
	// after that.
	Peek(fn func(Reader) error) error
}

// Peek calls Peek of a Peeker, and View of any other store.
func Peek(st Store, fn func(Reader) error) error {
	if p, ok := st.(Peeker); ok {
		return p.Peek(fn)
	}
	return st.View(fn)
}

// Tx is one commit in several steps, so that the next commit can be prepared while the disk is busy
// with this one. Call Apply for each batch, then Write, then Sync. Only one goroutine may use a Tx.
// A Tx ends with Sync, with an error of Write, or with Rollback.
type Tx interface {
	// Apply adds the changes of b. The caller must not change b until Sync has returned. If
	// applying the changes fails, Write returns the error.
	Apply(b *Batch)

	// Write waits until the commit before is durable, so that a crash cannot undo two commits, and
	// then writes all changes. After that, the next Begin can return.
	Write() error

	// Sync returns once everything is durable. The errors of Write and Sync are those of
	// Store.Commit and mean the same.
	Sync() error

	// Rollback discards all changes. It must not be called after Write.
	Rollback()
}

// Waiter is a Tx that can wait for more than its own store.
type Waiter interface {
	// Waited returns how long Sync has waited for something else, a standby for example.
	Waited() time.Duration
}

// Reader reads one state of a store. The slices that it returns belong to the store: the caller
// must not change them, nor use them after the View that gave the Reader has returned.
type Reader interface {
	// Get returns the value under key, nil if there is none. An empty value is not nil. If Get
	// cannot read, it returns nil and View returns the error: so fn must do nothing that cannot be
	// undone when a record is missing.
	Get(ks Keyspace, key []byte) []byte

	// Scan calls fn with each key in [from, to), in order, until fn returns false. If from is nil,
	// Scan begins at the first key of the keyspace; if to is nil, it ends after the last one. fn
	// may call all methods of the same Reader.
	Scan(ks Keyspace, from, to []byte, fn func(key, value []byte) bool) error

	// ScanBack is Scan in reverse order: it begins at the last key before to, and ends with the
	// first one from from on.
	ScanBack(ks Keyspace, from, to []byte, fn func(key, value []byte) bool) error
}

// Summer is a Reader that knows a checksum of each keyspace, over all of its records. Two states
// have equal sums if they have the same records, and almost certainly not otherwise.
type Summer interface {
	Sums() (sums [NumKeyspaces]uint64, err error)
}

// Stats is the size of a store in bytes.
type Stats struct {
	// FileBytes is the size of the file; it never shrinks.
	FileBytes int64
	// FreeBytes is the part of the file that is free. The store uses it before the file grows.
	FreeBytes int64
	// ReusableBytes is the part of FreeBytes that was used before, so that it has space on the
	// disk, and that does not have to wait for the end of a Snapshot.
	ReusableBytes int64
}
