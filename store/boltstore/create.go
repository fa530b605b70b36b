package boltstore

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// createIfMissing makes an empty store of the newest format at path, and its directory, unless the
// file exists, or refuseLost finds that it was lost. bbolt cannot open a file again if a loss of
// power interrupted its creation, so the store gets its name only when it is complete and on the
// disk.
//
// A Restore that began meanwhile may have found no store, and then replaces the one that is there
// now. So createIfMissing returns a *store.UnfinishedError if a Restore has not finished: nobody
// may serve that store. For the same reason it returns a *store.StandbyError if OpenStandby has
// taken the directory meanwhile.
func createIfMissing(path string, migrations store.Migrations) error {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = create(path, migrations)
	}
	return cmp.Or(err, refuseUnfinished(filepath.Dir(path)), refuseStandby(filepath.Dir(path)))
}

func create(path string, migrations store.Migrations) error {
	if err := refuseLost(path); err != nil {
		return err
	}
	if _, err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	temp, err := createTemp(path, migrations)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp) }() // if it stays, the next Open removes it
	// Another process may have made the store first, and may serve already. Link fails in this
	// case, but Rename would replace that store.
	if err := os.Link(temp, path); err != nil && !fileExists(path) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// refuseLost returns a *store.LostError if there is no file at path, but others that only a store
// leaves there.
func refuseLost(path string) error {
	dir := filepath.Dir(path)
	left := slices.DeleteFunc([]string{markName, reserveName},
		func(name string) bool { return !fileExists(filepath.Join(dir, name)) })
	if len(left) == 0 || fileExists(path) { // looked at last, because another process may be making the store
		return nil
	}
	return &store.LostError{Dir: dir, File: fileName, Left: left}
}

// createTemp makes a complete and synced store under a temporary name in the directory of path, and
// returns that name.
func createTemp(path string, migrations store.Migrations) (name string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), tempPattern)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	return file.Name(), errors.Join(file.Close(), initialize(file.Name(), migrations))
}

// initialize makes an empty file a complete and synced store.
func initialize(path string, migrations store.Migrations) error {
	db, err := bbolt.Open(path, 0o600, boltOptions(Options{}.withDefaults()))
	if err != nil {
		return err
	}
	var b store.Batch
	migrations.Stamp(&b)
	err = db.Update(func(tx *bbolt.Tx) error {
		w, err := newWriters(tx)
		if err == nil {
			err = new(plan).apply(w, &b)
		}
		if err == nil {
			err = w.finish()
		}
		return err
	})
	return errors.Join(err, db.Sync(), db.Close())
}

// fileExists reports whether path names a file of any type.
func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// makeDir makes a directory and its missing parents, and returns those that it has made, parents
// first. It syncs the parent of each, because syncing what is in a directory does not make the name
// of the directory durable. It also syncs the parent of a directory that exists: the process that
// made it may have been killed before it did so.
func makeDir(dir string) (made []string, err error) {
	parent := filepath.Dir(dir)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil, syncParent(parent)
	}
	if parent != dir {
		if made, err = makeDir(parent); err != nil {
			return made, err
		}
	}
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		made = append(made, dir)
	case !errors.Is(err, fs.ErrExist):
		return made, err
	}
	return made, syncParent(parent)
}

// removeMade removes the directories that makeDir has made, unless there is something in them now.
func removeMade(made []string) {
	for _, dir := range slices.Backward(made) {
		_ = os.Remove(dir)
	}
}

// syncParent is syncDir for a directory that may belong to somebody else. If this process may not
// read the directory, or its file system does not support a sync or is read-only, only its owner
// can do more, so that is no error.
func syncParent(dir string) error {
	err := syncDir(dir)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// syncDir makes the names in dir durable. Unlike durable.SyncDir, it fails on a file system that
// cannot do that: the store promises what it has committed.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeTemps removes the files that remain if createIfMissing or Compact is interrupted.
func removeTemps(dir string) error {
	for _, pattern := range []string{tempPattern, compactPattern} {
		names, err := fs.Glob(os.DirFS(dir), pattern) // filepath.Glob would read a [ in dir as part of the pattern
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
