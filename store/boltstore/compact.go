package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// compactTx is the size in bytes of the records that one transaction of a copy writes. The transaction holds them in memory.
const compactTx = 16 << 20

// Compact rewrites the store in dir without its free pages, and returns the size of the file before and after. It compares the sums of the copy with
// those of the store and calls check with the copy; then the copy replaces the store in one step. Until that step the store does not change. If a crash
// leaves a copy behind, the next Open removes it. The format stays the same.
//
// Errors are those of Open, and those of check.
func Compact(dir string, opts Options, check func(*Store) error) (before, after int64, err error) {
	s, err := openToCompact(dir, opts.withDefaults())
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }() // the lock is held until the copy has replaced the store
	dir = filepath.Dir(s.path)
	if err := errors.Join(writeOwner(dir), removeTemps(dir)); err != nil {
		return 0, 0, err
	}
	if _, err := store.Current().Check(s); err != nil {
		return 0, 0, err
	}
	if err := s.requireSums(); err != nil {
		return 0, 0, err
	}
	before = s.Stats().FileBytes
	after, err = s.replaceWithCopy(check)
	return before, after, err
}

// openToCompact opens the store in dir.
func openToCompact(dir string, opts Options) (*Store, error) {
	if err := refuseUnfinished(dir); err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(filepath.Join(dir, fileName)) // otherwise the copy would replace a symbolic link, and not the store
	if err != nil {
		return nil, err
	}
	o := opening{log: opts.Logger}
	db, err := openBolt(path, boltOptions(opts), o.checkAtOnce)
	if err != nil {
		return nil, err
	}
	opened, err := o.file.Stat()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newStore(db, func() {
		if named, err := os.Stat(path); err == nil && os.SameFile(opened, named) { // otherwise the owner file may be that of the process that has the copy open
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
	if err := errors.Join(s.copyOwnerAndMode(temp), temp.Close()); err != nil {
		return 0, err
	}
	if err := s.copyTo(temp.Name()); err != nil {
		return 0, err
	}
	if size, err = s.checkCopy(temp.Name(), check); err != nil {
		return 0, err
	}
	unmark(s.path)
	removeOwner(dir) // before another process can open the copy
	return size, errors.Join(os.Rename(temp.Name(), s.path), syncDir(dir))
}

// copyOwnerAndMode gives a new file the owner and the mode of the store: root may compact the store of another user, who must be able to open it afterwards.
func (s *Store) copyOwnerAndMode(to *os.File) error {
	info, err := s.fileInfo()
	if err != nil {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := to.Chown(int(of.Uid), int(of.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) { // only root may give files away
			return err
		}
	}
	return to.Chmod(info.Mode().Perm())
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

// renumberSums gives the copied sums the number of this transaction, which is the newest. It adds no sums to a store without them, and no checksum to sums
// without one: a program of the format of the store could not read them.
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

// checkCopy compares the sums of the copy at path with those of the store, and calls check with the copy. It returns the size of the copy in bytes.
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
