package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// Restore makes a store in dir, which must be empty or missing, from a file that Snapshot wrote. It
// checks the store as Open does and upgrades it; then prepare may look at it and change it. The
// store gets its name in one step, once all of that is durable. Until then it has another name in
// dir, which keeps Open from making an empty store there. If an earlier Restore was interrupted,
// Restore begins anew. The store gets the owner of dir, or if dir is missing, the owner of the
// file, as does dir.
//
// Errors are those of Open, *store.InUseError also if a process has the file open as its store,
// *store.NotEmptyError, and those of prepare. After an error, nothing is left of what Restore has
// made, dir included, unless the last step failed, which gives the store its name.
func Restore(file, dir string, opts Options, prepare func(*Store) error) (err error) {
	opts = opts.withDefaults()
	return makeStore(dir, file, func(temp string, made []string) error {
		owned := dir
		if len(made) > 0 {
			owned = file
		}
		owner, err := os.Stat(owned)
		if err != nil {
			return err
		}
		if err := errors.Join(copyFile(file, temp, owner, opts.LockTimeout), giveAway(owner, made)); err != nil {
			return err
		}
		return prepareStore(temp, opts, prepare)
	})
}

// makeStore makes a store in dir as Restore says: fill makes its file, under a temporary name, and
// leaves it durable; it also gets the directories that were made. from is the file from which the
// store is made, which must not be overwritten.
func makeStore(dir, from string, fill func(temp string, made []string) error) (err error) {
	made, err := makeDir(dir)
	if err != nil {
		removeMade(made)
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		if !errors.As(err, new(*store.InUseError)) { // otherwise another process makes a store in the directory
			removeMade(made)
		}
		return err
	}
	defer func() {
		if err != nil {
			removeMade(made)
		}
		err = errors.Join(err, lock.Close())
	}()
	temp := filepath.Join(dir, restoringName)
	if err := requireEmpty(dir, isSame(from, temp)); err != nil {
		return err
	}
	err = fill(temp, made)
	if err == nil && Exists(dir) { // an Open that saw the directory empty, too, has made a store meanwhile
		err = &store.NotEmptyError{Dir: dir, Name: fileName}
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temp))
	}
	return errors.Join(os.Rename(temp, filepath.Join(dir, fileName)), lock.Sync())
}

// lockDir keeps other restores and compactions out of a directory.
func lockDir(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = &store.InUseError{Dir: dir}
	case err != nil:
		err = &fs.PathError{Op: "lock", Path: dir, Err: err}
	default:
		return d, nil
	}
	return nil, errors.Join(err, d.Close())
}

// isSame reports whether two names are of the same file.
func isSame(a, b string) bool {
	of, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(of, other)
}

// requireEmpty refuses a directory in which there is anything but an unfinished restore or
// compaction. That is refused, too, if it is needed, because it would be overwritten.
func requireEmpty(dir string, needed bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() != restoringName || needed {
			return &store.NotEmptyError{Dir: dir, Name: entry.Name()}
		}
	}
	return nil
}

// copyFile makes a durable copy that belongs to that owner, who alone may read it. It overwrites a
// file at to, but not through a symbolic link. It does not copy a store that a process has open:
// the copy would be of several commits, or another store that can be served.
func copyFile(from, to string, owner os.FileInfo, timeout time.Duration) (err error) {
	in, err := openLocked(from, os.O_RDONLY, 0, syscall.LOCK_SH, timeout)
	if cannotLock(err) {
		in, err = os.Open(from)
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, chownAs(owner, out.Chown), out.Sync(), out.Close())
}

// cannotLock reports whether a file could not be locked because its file system has no locks. Then
// no store is served from there either.
func cannotLock(err error) bool {
	return slices.ContainsFunc([]error{errors.ErrUnsupported, syscall.ENOLCK, syscall.EINVAL, syscall.EBADF},
		func(cause error) bool { return errors.Is(err, cause) })
}

// prepareStore opens the copy at path, upgrades it, calls prepare, and closes it.
func prepareStore(path string, opts Options, prepare func(*Store) error) error {
	o := opening{log: opts.Logger}
	db, err := openBolt(path, boltOptions(opts), o.checkAtOnce)
	if err != nil {
		return err
	}
	s, err := newStore(db, func() {})
	if err != nil {
		return err
	}
	err = s.requireSums()
	if err == nil {
		err = store.Current().Upgrade(context.Background(), s)
	}
	if err == nil {
		err = prepare(s)
	}
	return errors.Join(err, s.Close())
}

// refuseUnfinished returns a *store.UnfinishedError if a restore or compaction into dir has not
// finished. Otherwise Open would make an empty store there.
func refuseUnfinished(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, restoringName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	unfinished := &store.UnfinishedError{Dir: dir, Name: restoringName}
	if Exists(dir) {
		unfinished.Store = fileName
	}
	return unfinished
}
