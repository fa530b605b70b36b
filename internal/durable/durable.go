// Package durable changes files. A change survives a power cut once the function has returned
// without an error.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Keep makes the contents of f durable, closes f and renames it to path, which must be in the same
// directory. After a crash, path has either its old contents or all of the new. If f cannot be
// renamed, or not made durable, Keep removes it.
func Keep(f *os.File, path string) error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// WriteFile creates or replaces the file at path, with the guarantees of Keep. Only its owner may
// read it.
func WriteFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		_ = os.Remove(f.Name())
		return errors.Join(err, f.Close())
	}
	return Keep(f, path)
}

// SyncDir makes the names of the files in dir durable. It does nothing if the file system cannot do
// that, such as one of a network disk.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
