package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lessor-dev/lessor/store"
)

// Names within the directory of a store.
const (
	fileName  = "lessor.db"
	tempNames = fileName + ".new-*" // first boots that were cut off
	ownerName = "lessor.owner"
)

// Options are the choices of who opens a store. The zero Options are right for most.
type Options struct {
	// MaxBytes is how large the file may become; a commit beyond it fails. 0 is no limit.
	MaxBytes int64
	// MapBytes is how much address space is mapped from the start; it costs no memory. While the file is smaller, a
	// commit never waits for a View. 0 is 1 GiB.
	MapBytes int64
	// LockTimeout is how long Open waits for another process to let the store go. 0 is one second.
	LockTimeout time.Duration
}

const (
	defaultMapBytes    = 1 << 30
	defaultLockTimeout = time.Second
)

func (o Options) withDefaults() Options {
	if o.MapBytes == 0 {
		o.MapBytes = defaultMapBytes
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = defaultLockTimeout
	}
	return o
}

// Open opens the store in dir, and makes both if they are not there. The time it takes grows with the number of pages,
// about a second for 3 GB in the page cache, since the free pages are not stored.
//
// The errors to tell apart are *store.InUseError, *store.NewerFormatError, *store.DamagedError and *store.CorruptError;
// others come from the operating system and name the directory.
func Open(dir string, opts Options) (*Store, error) {
	return open(dir, opts.withDefaults(), store.Current())
}

func open(dir string, opts Options, migrations store.Migrations) (*Store, error) {
	db, err := openFile(dir, opts, migrations)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	s := newStore(db, dir, opts)
	if err := s.settle(dir, migrations); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openFile returns the database file of dir, locked.
func openFile(dir string, opts Options, migrations store.Migrations) (*bbolt.DB, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fileName)
	if err := createIfMissing(path, migrations); err != nil {
		return nil, err
	}
	if err := checkMeta(path); err != nil {
		return nil, err
	}
	return openBolt(path, opts)
}

// settle does what only the owner of the file may do.
func (s *Store) settle(dir string, migrations store.Migrations) error {
	if err := own(dir); err != nil {
		return err
	}
	if err := removeTemps(dir); err != nil {
		return err
	}
	return migrations.Upgrade(context.Background(), s)
}

// openBolt opens an existing file. bbolt panics when it meets certain damage while it looks for the free pages, and then
// keeps the lock; so the file is held here to be closed.
func openBolt(path string, opts Options) (db *bbolt.DB, err error) {
	var file *os.File
	defer func() {
		if problem := recover(); problem != nil {
			_ = file.Close() // it was only read, and the panic is the better error
			db, err = nil, &store.DamagedError{Path: path, Problem: fmt.Sprint(problem)}
		}
	}()
	bolt := boltOptions(opts)
	bolt.OpenFile = func(name string, flag int, mode os.FileMode) (opened *os.File, err error) {
		file, err = os.OpenFile(name, flag&^os.O_CREATE, mode) // see createIfMissing
		return file, err
	}
	db, err = bbolt.Open(path, 0o600, bolt)
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, inUse(filepath.Dir(path))
	}
	return db, err
}

func boltOptions(opts Options) *bbolt.Options {
	return &bbolt.Options{
		Timeout:         opts.LockTimeout,
		InitialMmapSize: int(opts.MapBytes),
		MaxSize:         int(opts.MaxBytes),
		FreelistType:    bbolt.FreelistMapType,
		// A stored list of free pages is rewritten by every commit: half the rate after a large drain. Open scans instead.
		NoFreelistSync: true,
	}
}
