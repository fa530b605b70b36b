package boltstore

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lessor-dev/lessor/store"
)

// Store is an open store; Open makes one.
type Store struct {
	db        *bbolt.DB
	path      string
	pageSize  int
	failed    atomic.Pointer[store.CommitError]
	metaPages []byte // a mapping of the two meta pages
	// stuck: bbolt was left in the middle of a call or of a commit, and may hold its locks for ever
	// (see damage.go).
	stuck      atomic.Bool
	background *backgroundCheck // the check in the background; nil if the store was checked before it was opened
	// noteFile is the open file of the store, in which a commit notes that it is durable; nil if no
	// notes are written (see flush.go).
	noteFile *os.File
	// pins is the number of transactions that keep the pages of an older state for long: of
	// Snapshot, and of the check in the background.
	pins  atomic.Int32
	close func() error

	writing sync.Mutex // a commit holds it from its beginning until it is written
	written int        // number of the last commit that was written; guarded by writing
	plan    plan       // of the commit that holds writing
	// flushing is held by a commit from before it is written until its outcome is known. It is
	// locked after writing.
	flushing        sync.Mutex
	freelistOmitted bool          // the last commit left out the list of free pages; guarded by flushing
	durable         atomic.Uint64 // number of the last durable commit
	outcomeKnown    sync.Cond     // signals that durable has grown or that failed was set
}

var _ store.Store = (*Store)(nil)

// newStore returns the Store of an open database. Close of the Store calls removeOwner while it
// still holds the lock, so that removeOwner cannot remove the owner file of the next process.
func newStore(db *bbolt.DB, removeOwner func()) (*Store, error) {
	s := &Store{db: db, path: db.Path(), pageSize: db.Info().PageSize}
	s.outcomeKnown.L = new(sync.Mutex)
	_ = db.View(func(tx *bbolt.Tx) error { // the commits that the file has already were made durable when it was opened
		s.written = tx.ID()
		s.durable.Store(uint64(tx.ID()))
		return nil
	})
	var err error
	if s.metaPages, err = mapMetaPages(s.path, s.pageSize); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// not in close, because another call may read them just then
	runtime.AddCleanup(s, func(pages []byte) { _ = syscall.Munmap(pages) }, s.metaPages)
	s.close = sync.OnceValue(func() error { return s.shutDown(removeOwner) })
	return s, nil
}

func (s *Store) shutDown(removeOwner func()) error {
	if s.stuck.Load() {
		return nil // the end of the process closes the file
	}
	if s.background != nil {
		s.background.stopAndWait()
	}
	s.writeFreelist()
	defer s.pause()() // db.Close waits for the transaction of a commit, but not for the flush after it
	s.syncNote()
	if !s.Gone() { // if the file was moved away, the owner file may be that of another process
		removeOwner()
	}
	return s.db.Close()
}

// pause waits until all running commits have ended. No other commit begins until the caller calls
// over.
func (s *Store) pause() (over func()) {
	s.writing.Lock()
	s.flushing.Lock()
	return func() {
		s.flushing.Unlock()
		s.writing.Unlock()
	}
}

// fail makes every further call return the error of the first call of fail. It removes the mark, so
// that the next Open checks the store before it serves.
func (s *Store) fail(err error) error {
	s.setOutcome(func() {
		s.failed.CompareAndSwap(nil, &store.CommitError{Err: err})
		unmark(s.path) // before a caller gets the error, because that caller may end the process
	})
	return s.failed.Load()
}

// mark marks a store in which the check found no damage. If the store has failed, before or while
// the mark was made, mark removes the mark.
func (s *Store) mark(file *os.File) {
	setMark(file)
	if s.failed.Load() != nil {
		unmark(s.path)
	}
}

// View implements store.Store.
func (s *Store) View(fn func(store.Reader) error) error {
	number, err := s.read(fn)
	if number == 0 {
		return err
	}
	return cmp.Or(s.await(number), err)
}

// Peek implements store.Peeker.
func (s *Store) Peek(fn func(store.Reader) error) error {
	_, err := s.read(fn)
	return err
}

// read calls fn with the newest state, and returns the number of the commit that made it; 0 if fn
// was not called, or may have read anything.
func (s *Store) read(fn func(store.Reader) error) (number int, err error) {
	if failed := s.failed.Load(); failed != nil {
		return 0, failed
	}
	durable := int(s.durable.Load())
	tx, err := s.begin(false)
	if errors.Is(err, bolterrors.ErrInvalidMapping) { // a commit could not map more of the file, and is about to fail
		s.pause()()
		return 0, s.fail(err) // the error of the commit
	}
	if err != nil {
		return 0, err
	}
	number = tx.ID()
	err = s.guarded(func() error { return view(tx, fn) })
	if lost := s.requireNewest(number, durable); lost != nil {
		return 0, lost
	}
	return number, err
}

// view calls fn with a reader of the transaction. It ends the transaction, even if fn panics.
func view(tx *bbolt.Tx, fn func(store.Reader) error) error {
	defer func() { _ = tx.Rollback() }() // the transaction only read, so there is nothing to undo
	return fn(&reader{tx: tx})
}

// Snapshot implements store.Store. Pages that are freed while it runs can be used again only after
// it has ended, so that a slow w makes the file grow.
func (s *Store) Snapshot(w io.Writer) (int64, error) {
	s.pins.Add(1)
	defer s.pins.Add(-1)
	tx, err := s.beginDurable()
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	return tx.WriteTo(w)
}

// beginDurable begins to read the newest state, after it has waited until that state is durable.
func (s *Store) beginDurable() (*bbolt.Tx, error) {
	defer s.pause()()
	if failed := s.failed.Load(); failed != nil {
		return nil, failed
	}
	tx, err := s.begin(false)
	if err != nil {
		return nil, err
	}
	if err := s.requireNewest(tx.ID(), int(s.durable.Load())); err != nil {
		_ = tx.Rollback()
		return nil, err
	}
	return tx, nil
}

// Stats implements store.Store.
func (s *Store) Stats() store.Stats {
	pages := s.db.Stats()
	free, pending := int64(pages.FreePageN)*int64(s.pageSize), int64(pages.PendingPageN)*int64(s.pageSize)
	stats := store.Stats{FreeBytes: free + pending, ReusableBytes: free}
	if s.pins.Load() == 0 { // otherwise the pages may stay pending for as long as a backup takes
		stats.ReusableBytes += pending
	}
	used := s.usedBytes()
	if info, err := s.fileInfo(); err == nil {
		stats.FileBytes = info.Size()
		stats.FreeBytes += max(0, stats.FileBytes-used)
	}
	return stats
}

// fileInfo describes the open file, even if its path has another file by now. A store without notes
// has no such handle, so fileInfo describes what is at the path.
func (s *Store) fileInfo() (os.FileInfo, error) {
	if s.noteFile == nil {
		return os.Stat(s.path)
	}
	return s.noteFile.Stat()
}

// Gone reports whether the open file is no longer at the path at which it was opened, because the
// file or its directory was moved or removed. Commits still go into the open file, and the next
// Open of the path will not find them.
func (s *Store) Gone() bool {
	named, err := os.Stat(s.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // any other error is a fault of the disk, which commits will report
	}
	opened, err := s.fileInfo()
	return err == nil && !os.SameFile(opened, named)
}

// usedBytes is the offset in bytes of the end of the last page that was ever written. The file is
// longer, because it grows in steps of 16 MiB.
func (s *Store) usedBytes() (size int64) {
	tx, err := s.begin(false)
	if err != nil {
		return math.MaxInt64 // in a closed store no byte is known to be free
	}
	defer func() { _ = tx.Rollback() }()
	return tx.Size()
}

// Close implements store.Store.
func (s *Store) Close() error { return s.close() }
