package boltstore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// compactTx is the size in bytes of the records that one transaction of a copy writes. The
// transaction holds them in memory.
const compactTx = 16 << 20

// Compact rewrites the store in dir without its free pages, and returns the size of the file before
// and after. It compares the sums of the copy with those of the store and calls check with the
// copy; then the copy replaces the store in one step. Until that step the store does not change. If
// a crash leaves a copy behind, the next Open removes it. The format stays the same.
//
// Errors are those of Open, *store.NoRoomError, and those of check.
func Compact(dir string, opts Options, check func(*Store) error) (before, after int64, err error) {
	s, err := openToCompact(dir, opts.withDefaults(), false)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // the lock is held until the copy has replaced the store
	dir = filepath.Dir(s.path)
	if err := errors.Join(writeOwner(dir), removeTemps(dir)); err != nil {
		return 0, 0, err
	}
	before = s.Stats().FileBytes
	after, err = s.replaceWithCopy(check)
	return before, after, err
}

// CompactTo makes the copy in another directory, which must be empty or missing, as Restore does,
// and does not change the store. It writes nothing to the disk of the store that it needs, so that
// disk may be full or read-only. The copy, and directories that CompactTo makes, get the owner of
// the store. The copy has the same epoch: only one of the two may be served from now on.
//
// Errors are those of Compact, about the store in dir, and *TargetError.
func CompactTo(dir, target string, opts Options, check func(*Store) error) (before, after int64, err error) {
	s, err := openToCompact(dir, opts.withDefaults(), false)
	if errors.Is(err, syscall.EROFS) {
		s, err = openToCompact(dir, opts.withDefaults(), true)
	}
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // the lock is held: nobody changes the store meanwhile
	_ = writeOwner(filepath.Dir(s.path))                 // only a hint for those who find the store in use
	before = s.Stats().FileBytes
	var checked error
	info, err := s.fileInfo()
	if err != nil {
		return 0, 0, err
	}
	err = makeStore(target, s.path, func(temp string, made []string) error {
		if err := errors.Join(os.RemoveAll(temp), giveAway(info, made)); err != nil {
			return err
		}
		file, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		after, err = s.fillCopy(file, func(to *Store) error {
			checked = check(to)
			return checked
		})
		return err
	})
	if err != nil && checked == nil {
		err = &TargetError{err}
	}
	return before, after, err
}

// TargetError is an error about the directory in which CompactTo or Salvage makes a store.
type TargetError struct{ Err error }

func (e *TargetError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *TargetError) Unwrap() error { return e.Err }

// openToCompact opens the store in dir, and checks that it is whole and not newer than this
// program. With readOnly it cannot take back a commit that a loss of power cut off, and returns a
// *store.TornError.
func openToCompact(dir string, opts Options, readOnly bool) (*Store, error) {
	s, err := openUnchecked(dir, opts, readOnly)
	if err != nil {
		return nil, err
	}
	if _, err = store.Current().Check(s); err == nil {
		err = s.requireSums()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openUnchecked(dir string, opts Options, readOnly bool) (*Store, error) {
	if err := cmp.Or(refuseStandby(dir), refuseUnfinished(dir)); err != nil {
		return nil, err
	}
	// a copy must replace the store itself, not a symbolic link to it
	path, err := filepath.EvalSymlinks(filepath.Join(dir, fileName))
	if err != nil {
		return nil, err
	}
	bolt, o := boltOptions(opts), opening{log: opts.Logger}
	check := o.checkAtOnce
	if bolt.ReadOnly = readOnly; readOnly {
		check = o.checkOnly
	}
	db, err := openBolt(path, bolt, check)
	if err != nil {
		return nil, err
	}
	opened, err := o.file.Stat()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newStore(db, func() {
		// if the file was replaced, the owner file may be of the process that has the copy open
		if named, err := os.Stat(path); err == nil && os.SameFile(opened, named) {
			removeOwner(filepath.Dir(path))
		}
	})
}

// replaceWithCopy makes a copy of the store, checks the copy and replaces the store with it.
func (s *Store) replaceWithCopy(check func(*Store) error) (size int64, err error) {
	dir := filepath.Dir(s.path)
	temp, err := os.CreateTemp(dir, compactPattern)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // after a success the file has another name, and Remove fails
	if size, err = s.fillCopy(temp, check); err != nil {
		return 0, err
	}
	unmark(s.path)
	removeOwner(dir) // before another process can open the copy
	return size, errors.Join(os.Rename(temp.Name(), s.path), syncDir(dir))
}

// fillCopy makes a new, empty file a copy of the store, closes it and checks it. It begins only if
// the disk has room.
func (s *Store) fillCopy(file *os.File, check func(*Store) error) (size int64, err error) {
	path := file.Name()
	info, err := s.fileInfo()
	if err != nil {
		return 0, errors.Join(err, file.Close())
	}
	if err := errors.Join(copyOwnerAndMode(info, file), file.Close()); err != nil {
		return 0, err
	}
	if err := s.requireRoomForCopy(filepath.Dir(path)); err != nil {
		return 0, err
	}
	if err := s.copyTo(path); err != nil {
		return 0, err
	}
	return s.checkCopy(path, check)
}

// requireRoomForCopy returns a *store.NoRoomError if the disk of dir has less free space than the
// records of the store take in a file without free pages. The copy is a little larger than that, so
// a copy that just does not fit still fails while it is written.
func (s *Store) requireRoomForCopy(dir string) error {
	needed := int64(0)
	err := s.View(func(r store.Reader) error {
		return r.(*reader).tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			needed += int64(b.Stats().LeafInuse)
			return nil
		})
	})
	if err != nil {
		return err
	}
	return requireRoom(dir, needed)
}

// requireRoom returns a *store.NoRoomError if the disk of dir has less free space than a copy
// needs.
func requireRoom(dir string, needed int64) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return err
	}
	free := int64(float64(disk.Bavail) * float64(disk.Bsize)) // the types of both differ from system to system
	if free < needed {
		return &store.NoRoomError{Dir: dir, Needed: needed, Free: free}
	}
	return nil
}

// copyTo writes all records to a new file without free pages, and syncs the file once at the end.
func (s *Store) copyTo(path string) error {
	opts := boltOptions(Options{}.withDefaults())
	opts.NoSync, opts.NoGrowSync = true, true
	to, err := bbolt.Open(path, 0o600, opts)
	if err != nil {
		return err
	}
	err = bbolt.Compact(to, s.db, compactTx)
	if err == nil {
		err = to.Update(renumberSums)
	}
	return errors.Join(err, to.Sync(), to.Close())
}

// renumberSums gives the copied sums the number of this transaction, which is the newest. It adds
// no sums to a store without them, and no checksum to sums without one: a program of the format of
// the store could not read them.
func renumberSums(tx *bbolt.Tx) error {
	bucket := tx.Bucket([]byte(sumsBucket))
	if bucket == nil {
		return nil
	}
	stored, ok := renumbered(bucket.Get([]byte(sumsKey)), uint64(tx.ID()))
	if !ok {
		return errSums
	}
	return bucket.Put([]byte(sumsKey), stored)
}

// checkCopy compares the sums of the copy at path with those of the store, and calls check with the
// copy. It returns the size of the copy in bytes.
func (s *Store) checkCopy(path string, check func(*Store) error) (size int64, err error) {
	to, err := OpenReadOnly(path, Options{})
	if err != nil {
		return 0, fmt.Errorf("the copy: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	want, err := s.sums()
	if err != nil {
		return 0, err
	}
	got, err := to.sums()
	switch {
	case err != nil:
		return 0, err
	case *got != *want:
		return 0, errors.New("the copy differs from the store")
	}
	return to.Stats().FileBytes, check(to)
}

// sums computes the sums of all records of the newest commit.
func (s *Store) sums() (all *sums, err error) {
	err = s.View(func(r store.Reader) (err error) {
		all, err = computeSums(r.(*reader).tx)
		return err
	})
	return all, err
}
