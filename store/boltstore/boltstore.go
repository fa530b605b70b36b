package boltstore

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lessor-dev/lessor/store"
)

// Store is an open store; Open makes one.
type Store struct {
	db       *bbolt.DB
	path     string
	pageSize int
	maxBytes int64
	failed   atomic.Pointer[store.CommitError]
	recheck  *recheck // nil in a store that was checked before it was opened
	notes    *os.File // the store's own, where one flush makes a commit durable; see flush
	close    func() error

	writing  sync.Mutex    // from the beginning of a commit until it is written
	plan     plan          // of that commit
	flushing sync.Mutex    // from before it is written until its outcome is known; taken after writing
	unlisted bool          // the last commit left the list of free pages out; guarded by flushing
	durable  atomic.Uint64 // number of the last commit that is
	settled  sync.Cond     // durable has grown, or failed is set
}

var _ store.Store = (*Store)(nil)

// newStore calls disown before it lets the file go, while the lock still keeps the next owner from writing its own.
func newStore(db *bbolt.DB, opts Options, disown func()) *Store {
	s := &Store{db: db, path: db.Path(), pageSize: db.Info().PageSize, maxBytes: opts.MaxBytes}
	s.settled.L = new(sync.Mutex)
	_ = db.View(func(tx *bbolt.Tx) error { // of what is there already, opening has made sure
		s.durable.Store(uint64(tx.ID()))
		return nil
	})
	s.close = sync.OnceValue(func() error {
		if s.recheck != nil {
			s.recheck.end()
		}
		s.listFree()
		defer s.pause()() // a commit flushes after bbolt has let go of it
		s.keepNote()
		if !s.Gone() { // or else who is there by now has told of itself
			disown()
		}
		return db.Close()
	})
	return s
}

// pause waits for the end of the commits under way, and keeps others from beginning until it is over.
func (s *Store) pause() (over func()) {
	s.writing.Lock()
	s.flushing.Lock()
	return func() {
		s.flushing.Unlock()
		s.writing.Unlock()
	}
}

// fail has every further call fail with the first error, and the next Open check the store before anything else.
func (s *Store) fail(err error) error {
	s.ended(func() {
		s.failed.CompareAndSwap(nil, &store.CommitError{Err: err})
		unmark(s.path) // before anybody is told, who may end the process
	})
	return s.failed.Load()
}

// mark marks the store, which was found sound, unless it has failed: before, or while the mark was made.
func (s *Store) mark(file *os.File) {
	setMark(file)
	if s.failed.Load() != nil {
		unmark(s.path)
	}
}

// View implements store.Store.
func (s *Store) View(fn func(store.Reader) error) error {
	if failed := s.failed.Load(); failed != nil {
		return failed
	}
	tx, err := s.beginRead()
	if err != nil {
		return err
	}
	number := tx.ID()
	err = look(tx, fn)
	return cmp.Or(s.await(number), err)
}

// look ends the transaction, also where fn panics.
func look(tx *bbolt.Tx, fn func(store.Reader) error) error {
	defer func() { _ = tx.Rollback() }() // ends a read; there is nothing to undo
	return fn(&reader{tx: tx})
}

// Snapshot implements store.Store. Pages that are freed while it runs can be used again only after it has ended, so that a slow w makes the file grow.
func (s *Store) Snapshot(w io.Writer) (int64, error) {
	tx, err := s.beginDurable()
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	return tx.WriteTo(w)
}

// beginDurable reads a state that is durable.
func (s *Store) beginDurable() (*bbolt.Tx, error) {
	defer s.pause()()
	if failed := s.failed.Load(); failed != nil {
		return nil, failed
	}
	return s.beginRead()
}

// beginRead reads the newest state, durable or not.
func (s *Store) beginRead() (*bbolt.Tx, error) {
	tx, err := s.db.Begin(false)
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return nil, store.ErrClosed
	}
	return tx, err
}

// Stats implements store.Store.
func (s *Store) Stats() store.Stats {
	pages := s.db.Stats()
	stats := store.Stats{
		FreeBytes: int64(pages.FreePageN+pages.PendingPageN) * int64(s.pageSize),
		MaxBytes:  s.maxBytes,
	}
	used := s.used()
	if info, err := s.file(); err == nil {
		stats.FileBytes = info.Size()
		stats.FreeBytes += max(0, stats.FileBytes-used)
	}
	return stats
}

// file is what is open, whatever has its name by now.
func (s *Store) file() (os.FileInfo, error) {
	if s.notes == nil { // a store to look at
		return os.Stat(s.path)
	}
	return s.notes.Stat()
}

// Gone reports whether the open file is no longer at the path at which it was opened, because the file or its directory was moved or removed. Commits
// still go into the open file, and the next Open of the path will not find them.
func (s *Store) Gone() bool {
	named, err := os.Stat(s.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // any other error is one of the disk, which commits tell of
	}
	opened, err := s.file()
	return err == nil && !os.SameFile(opened, named)
}

// used is where the last page ends that was ever written. The file is longer: it grows by 16 MiB.
func (s *Store) used() (size int64) {
	tx, err := s.beginRead()
	if err != nil {
		return math.MaxInt64 // of a store that is closed nothing is known to be free
	}
	defer func() { _ = tx.Rollback() }()
	return tx.Size()
}

// Close implements store.Store.
func (s *Store) Close() error { return s.close() }
