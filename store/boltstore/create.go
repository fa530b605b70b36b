package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// createIfMissing makes an empty store of the newest format at path, and the directory for it. A file that bbolt was still laying out when the
// power failed cannot be opened again, so the store gets its name when it is complete and on the disk.
func createIfMissing(path string, migrations store.Migrations) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	temp, err := createTemp(path, migrations)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp) }() // if it stays, the next Open removes it
	// A link fails where a rename would replace the store of another process that came first, which may serve already.
	if err := os.Link(temp, path); err != nil && !exists(path) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// createTemp returns the name of a complete and synced store that has a name of its own beside path.
func createTemp(path string, migrations store.Migrations) (name string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), tempNames)
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	db, err := bbolt.Open(file.Name(), 0o600, boltOptions(Options{}.withDefaults()))
	if err != nil {
		return "", err
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
	return file.Name(), errors.Join(err, db.Sync(), db.Close())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// makeDir makes a directory, and those above it that are missing, each with a durable name: a sync of what lies in it promises nothing about that. One that is there may be of a process that was killed
// before it came so far.
func makeDir(dir string) error {
	parent := filepath.Dir(dir)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return syncAbove(parent)
	}
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncAbove(parent)
}

// syncAbove is syncDir for a directory that may be somebody else's: where it cannot be read, or nothing can be written to it, nobody but its owner can do that.
func syncAbove(dir string) error {
	err := syncDir(dir)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeTemps clears away what first boots and copies left that did not get to their end.
func removeTemps(dir string) error {
	for _, pattern := range []string{tempNames, compactNames} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
