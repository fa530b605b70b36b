package boltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// Names of files in the directory of a store.
const (
	fileName       = "lessor.db"
	tempPattern    = fileName + ".new-*"     // temporary files of createIfMissing
	compactPattern = fileName + ".compact-*" // temporary files of Compact
	restoringName  = fileName + ".restoring" // a store that Restore or CompactTo has not finished
	ownerName      = "lessor.owner"          // see owner
	markName       = fileName + ".checked"   // see mark
	reserveName    = "lessor.reserve"        // see package reserve
	standbyName    = "lessor.standby"        // see Standby
	copyingName    = "copying"               // the directory of a copy that a Standby has not finished
)

// Options configure how a store is opened. The zero Options suit most callers.
type Options struct {
	// MaxBytes is how large the file may become; a commit beyond it fails. 0 is no limit.
	MaxBytes int64
	// MapBytes is how much address space is mapped from the start, or the size of the file and a
	// quarter of MapBytes if that is more; it costs no memory. While the file is smaller, a commit
	// never waits for a View, a Snapshot or the check that runs after Open. 0 is 64 GiB, or a
	// quarter of what the process may map if that is limited (ulimit -v), but at least 1 GiB.
	MapBytes int64
	// LockTimeout is how long Open waits for another process to close the store. 0 is
	// DefaultLockTimeout.
	LockTimeout time.Duration
	// Logger gets a message if Open takes back a commit that a loss of power cut off, if Open
	// upgrades the store, and if the store was last written later than now. nil is slog.Default().
	Logger *slog.Logger
}

// DefaultLockTimeout is how long Open waits for another process to close the store, unless Options
// say otherwise.
const DefaultLockTimeout = time.Second

func (o Options) withDefaults() Options {
	o.MapBytes = cmp.Or(o.MapBytes, defaultMapBytes())
	o.LockTimeout = cmp.Or(o.LockTimeout, DefaultLockTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// Open opens the store in dir, and makes the directory and the store if they do not exist. The
// first time since the machine was booted, and before an upgrade, Open checks all pages, which it
// reads from the disk: some 450 MB for a million tasks. Otherwise the check runs after Open has
// returned; if it finds something wrong, all further calls fail.
//
// If the newest commit is in the file only in part, and the commit before it is whole, Open takes
// the newest one back: the power was lost while it was under way, and nobody was told of it.
//
// The errors to tell apart are *store.InUseError, *store.NewerFormatError, *store.DamagedError,
// *store.CorruptError, *store.UnfinishedError, *store.LostError and *store.StandbyError; others
// come from the operating system and name the directory or the file.
func Open(dir string, opts Options) (*Store, error) {
	return open(dir, opts.withDefaults(), store.Current())
}

func open(dir string, opts Options, migrations store.Migrations) (*Store, error) {
	if err := cmp.Or(refuseStandby(dir), refuseUnfinished(dir)); err != nil {
		return nil, err
	}
	if err := createIfMissing(filepath.Join(dir, fileName), migrations); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return openExisting(dir, opts, migrations, opening{log: opts.Logger})
}

// openExisting is Open for a store that exists, whoever may serve it.
func openExisting(dir string, opts Options, migrations store.Migrations, o opening) (*Store, error) {
	db, err := openBolt(filepath.Join(dir, fileName), boltOptions(opts), o.check)
	if err != nil {
		return nil, errors.Join(err, o.release())
	}
	s, err := newStore(db, func() { removeOwner(dir) })
	if err != nil {
		return nil, err
	}
	err = o.pinPages(db)
	if err == nil {
		err = s.takeOwnership(dir, migrations, &o)
	}
	if err != nil {
		return nil, errors.Join(err, o.abort(s, err), s.Close())
	}
	s.noteFile = o.file // the store has the newest format now; from the second commit on, each one takes one flush
	o.finish(s)
	return s, nil
}

// Exists reports whether dir contains a store.
func Exists(dir string) bool {
	return fileExists(filepath.Join(dir, fileName))
}

// DiskDir returns a directory on the disk that holds the file of the store in dir, which a symbolic
// link may have put on another one.
func DiskDir(dir string) string {
	if file, err := filepath.EvalSymlinks(filepath.Join(dir, fileName)); err == nil {
		return filepath.Dir(file)
	}
	return dir
}

// OpenReadOnly opens a store for reading. path is the directory of a store, or a file that Snapshot
// wrote. OpenReadOnly checks the store as Open does, but does not change or upgrade it. No process
// may have the store open for writing. Commit fails. The directory may be that of a standby. The
// errors are those of Open, also *store.TornError if Open would take a commit back, and
// fs.ErrNotExist if there is no store.
func OpenReadOnly(path string, opts Options) (*Store, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if err := refuseUnfinished(path); err != nil {
			return nil, err
		}
		path = filepath.Join(path, fileName)
	}
	bolt := boltOptions(opts.withDefaults())
	bolt.ReadOnly = true
	db, err := openBolt(path, bolt, checkFile)
	if err != nil {
		return nil, err
	}
	s, err := newStore(db, func() {})
	if err != nil {
		return nil, err
	}
	_, err = store.Current().Check(s)
	if err = cmp.Or(err, s.requireSums()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// takeOwnership does the part of Open that needs the lock on an open store: it writes the owner
// file, removes temporary files and upgrades the store.
func (s *Store) takeOwnership(dir string, migrations store.Migrations, o *opening) error {
	if err := writeOwner(dir); err != nil {
		return err
	}
	if err := removeTemps(dir); err != nil {
		return err
	}
	// the process that named the store may have been killed before the name was durable
	if err := syncDir(dir); err != nil {
		return err
	}
	have, err := s.firstRead(migrations)
	if err != nil || have == migrations.Format() {
		return err
	}
	if o.keepFormat {
		return errOlderFormat
	}
	if err := o.checkNow(); err != nil { // an upgrade reads all records anyway, and cannot be undone
		return err
	}
	if err := migrations.Upgrade(context.Background(), s); err != nil {
		return err
	}
	o.log.Warn("the store was upgraded to a newer format: older versions of lessor can no longer open it",
		"store", s.path, "from", have, "to", migrations.Format())
	return nil
}

// firstRead returns the format of the store. A store with a mark has not been checked yet, and
// bbolt panics, or reads past the end of the file, at a damaged page.
func (s *Store) firstRead(migrations store.Migrations) (format uint32, err error) {
	fault := catchFaults(func() error {
		format, err = migrations.Check(s)
		err = cmp.Or(err, s.requireSums())
		return nil
	})
	return format, cmp.Or(damaged(s.path, fault), err)
}

// defaultMapBytes leaves room for what a store grows by during the longest backup: bbolt maps more
// only when nobody reads, and until then all commits would wait. On systems of 64 bits, address
// space is plentiful unless it is limited (ulimit -v).
func defaultMapBytes() int64 {
	const least, most = 1 << 30, 1 << (30 + 6*(math.MaxUint>>63))
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_AS, &limit) != nil {
		return least
	}
	return int64(max(least, min(most, uint64(limit.Cur)/4))) //nolint:unconvert // the type differs from system to system
}

func boltOptions(opts Options) *bbolt.Options {
	return &bbolt.Options{
		// of openBolt; bbolt itself never has to wait, because openBolt has locked the file before
		Timeout:         opts.LockTimeout,
		InitialMmapSize: int(opts.MapBytes),
		MaxSize:         int(opts.MaxBytes),
		FreelistType:    bbolt.FreelistMapType,
		NoFreelistSync:  true, // each commit of a Store sets it anew: see freelistTooLong
	}
}
