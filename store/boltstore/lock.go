package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

// openBolt opens an existing file. It first locks the file and calls check while it holds the lock.
func openBolt(path string, bolt *bbolt.Options, check func(*os.File) error) (*bbolt.DB, error) {
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() { // the opening of a named pipe would wait for a writer
			return nil, damaged(path, errors.New("it is not a regular file"))
		}
		bolt.InitialMmapSize = max(bolt.InitialMmapSize, int(info.Size())+bolt.InitialMmapSize/4)
	}
	how := syscall.LOCK_EX
	if bolt.ReadOnly {
		how = syscall.LOCK_SH
	}
	bolt.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		file, err := openLocked(name, flag&^os.O_CREATE, mode, how, bolt.Timeout) // see createIfMissing
		if err != nil {
			return nil, err
		}
		if err := check(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return file, nil
	}
	return bbolt.Open(path, 0o600, bolt)
}

// openLocked opens a file and locks it. If the previous holder of the lock has replaced the file
// meanwhile, as Compact does, openLocked opens the new file.
func openLocked(name string, flag int, mode os.FileMode, how int, timeout time.Duration) (*os.File, error) {
	for {
		file, err := os.OpenFile(name, flag, mode)
		if err != nil {
			return nil, err
		}
		err = lock(file, how, timeout)
		if err == nil && isNamed(file, name) {
			return file, nil
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
}

// isNamed reports whether name still is a name of the file. It returns true if this cannot be found
// out, because then there is no other file to open.
func isNamed(file *os.File, name string) bool {
	opened, err := file.Stat()
	named, err2 := os.Stat(name)
	return err != nil || err2 != nil || os.SameFile(opened, named)
}

// lock locks a file. bbolt will lock the same open file again, which succeeds at once.
func lock(file *os.File, how int, timeout time.Duration) error {
	const pause = 10 * time.Millisecond
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
		switch {
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return err
		case !time.Now().Before(deadline):
			return inUseError(filepath.Dir(file.Name()))
		}
	}
}
