package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lessor-dev/lessor/store"
)

// Standby is the directory of a standby, which has a complete copy of a coordinator's store, or is
// receiving one, or both:
//
//	lessor.standby      the marker, which keeps Open from the directory until Promote has removed it; says which coordinator the standby follows
//	lessor.db           the complete copy, if there is one
//	copying/lessor.db   the copy that is being received
//
// A Standby has a lock on the directory until Close. Only one goroutine may use it. After an error
// of Empty or Replace, only Close may be called.
type Standby struct {
	dir      string
	source   string
	opts     Options
	lock     *os.File // the open directory
	complete *Store   // nil if there is none of the newest format
	older    *Store   // the complete copy, if it is of an older format; only to be read
	copying  *Store   // nil if there is none
}

const (
	standbyText  = "This is the directory of a standby. No coordinator serves it until \"lessor standby promote\" has made it that of a store.\n"
	standbyLabel = "It follows "
)

// StandbySource returns the source that the directory of a standby was last opened with; empty if
// it is not known.
func StandbySource(dir string) string {
	text, _ := os.ReadFile(filepath.Join(dir, standbyName)) // without the marker it is not known
	_, source, _ := strings.Cut(string(text), standbyLabel)
	return strings.TrimSpace(source)
}

// OpenStandby opens the directory of a standby of source, the address of a coordinator, or makes
// it: then dir must be empty or missing. It opens the complete copy as Open does, but does not
// upgrade it, because it would differ from the coordinator's then: one of an older format stays as
// it is, for Promote and Older, and Complete returns nil. OpenStandby discards a copy that did not
// finish.
//
// The errors are *store.NotEmptyError, *store.InUseError, and those of Open about the complete
// copy, among them *store.NewerFormatError.
func OpenStandby(dir, source string, opts Options) (_ *Standby, err error) {
	if _, err := makeDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockStandby(dir)
	if err != nil {
		return nil, err
	}
	s := &Standby{dir: dir, source: source, opts: opts.withDefaults(), lock: lock}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.takeDirectory(); err != nil {
		return nil, err
	}
	if err := writeOwner(dir); err != nil { // says who has the directory as long as there is no complete copy
		return nil, err
	}
	if err := os.RemoveAll(s.path(copyingName)); err != nil {
		return nil, err
	}
	if err := s.openComplete(); err != nil {
		return nil, err
	}
	return s, nil
}

// lockStandby is lockDir, but its *store.InUseError says who has the directory.
func lockStandby(dir string) (*os.File, error) {
	lock, err := lockDir(dir)
	if errors.As(err, new(*store.InUseError)) {
		err = inUseError(dir)
	}
	return lock, err
}

func (s *Standby) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

// takeDirectory makes an empty directory that of a standby, durably, unless it is one already. Only
// the name of the marker counts, so it does not matter if a crash cuts off the text.
func (s *Standby) takeDirectory() error {
	marker, text := s.path(standbyName), []byte(standbyText+standbyLabel+s.source+"\n")
	if fileExists(marker) {
		// the process that made the marker may have been killed before its name was durable
		return errors.Join(writeNoFollow(marker, text), s.lock.Sync())
	}
	if err := requireEmpty(s.dir, true); err != nil {
		return err
	}
	if err := writeNoFollow(marker, text); err != nil {
		return err
	}
	if Exists(s.dir) { // an Open that saw the directory empty, too, has made a store meanwhile
		return errors.Join(&store.NotEmptyError{Dir: s.dir, Name: fileName}, os.Remove(marker))
	}
	return s.lock.Sync()
}

func (s *Standby) openComplete() (err error) {
	if !Exists(s.dir) {
		return nil
	}
	s.complete, err = s.open(s.dir)
	if errors.Is(err, errOlderFormat) {
		s.older, err = OpenReadOnly(s.dir, s.opts)
	}
	return err
}

func (s *Standby) open(dir string) (*Store, error) {
	return openExisting(dir, s.opts, store.Current(), opening{log: s.opts.Logger, keepFormat: true})
}

// Complete returns the complete copy, which may be used until Replace or Close. It returns nil if
// there is none of the newest format.
func (s *Standby) Complete() store.Store {
	if s.complete == nil {
		return nil
	}
	return s.complete
}

// Older returns the complete copy if it is of an older format, to be read until Replace or Close.
// It returns nil if there is none.
func (s *Standby) Older() store.Store {
	if s.older == nil {
		return nil
	}
	return s.older
}

// Empty makes an empty store for a new copy, and discards one that was not finished. The complete
// copy stays.
func (s *Standby) Empty() (_ store.Store, err error) {
	dir := s.path(copyingName)
	if err := errors.Join(closeIfOpen(&s.copying), os.RemoveAll(dir)); err != nil {
		return nil, err
	}
	if err := createIfMissing(filepath.Join(dir, fileName), store.Current()); err != nil {
		return nil, err
	}
	// keeps Open from the copy while no standby runs
	if err := writeNoFollow(filepath.Join(dir, standbyName), []byte(standbyText)); err != nil {
		return nil, err
	}
	if s.copying, err = s.open(dir); err != nil {
		return nil, err
	}
	return s.copying, nil
}

// Replace makes the store of Empty the complete copy, in one step: after a crash at any moment, the
// older one is complete, or the newer one. It closes the older one.
func (s *Standby) Replace() error {
	if s.copying == nil {
		return errors.New("no copy was begun")
	}
	copied := s.copying
	if err := closeIfOpen(&s.copying); err != nil {
		return err
	}
	if failed := copied.failed.Load(); failed != nil {
		return failed
	}
	if err := errors.Join(closeIfOpen(&s.complete), closeIfOpen(&s.older)); err != nil {
		return err
	}
	if err := os.Rename(s.path(copyingName, fileName), s.path(fileName)); err != nil {
		return err
	}
	// The mark is of the file, whatever its name. So the copy, which was open since it was made, is
	// checked in the background.
	_ = os.Rename(s.path(copyingName, markName), s.path(markName))
	if err := errors.Join(s.lock.Sync(), os.RemoveAll(s.path(copyingName)), writeOwner(s.dir)); err != nil {
		return err
	}
	return s.openComplete()
}

// Close closes the stores, and unlocks the directory.
func (s *Standby) Close() error {
	err := errors.Join(closeIfOpen(&s.copying), closeIfOpen(&s.complete), closeIfOpen(&s.older))
	removeOwner(s.dir)
	return errors.Join(err, s.lock.Close())
}

// closeIfOpen closes the store, if there is one, and forgets it.
func closeIfOpen(s **Store) (err error) {
	if *s != nil {
		err = (*s).Close()
		*s = nil
	}
	return err
}

// refuseStandby returns a *store.StandbyError if dir is that of a standby, or if the store there is
// a symbolic link into one.
func refuseStandby(dir string) error {
	for _, dir := range []string{dir, DiskDir(dir)} {
		if isStandby(dir) {
			return &store.StandbyError{Dir: dir}
		}
	}
	return nil
}

func isStandby(dir string) bool { return fileExists(filepath.Join(dir, standbyName)) }

// Promote makes the directory of a standby that of a store. It checks the complete copy and
// upgrades it; then prepare may look at it and change it. Once all of that is durable, the
// directory stops being that of a standby, in one step. After an error or a crash before that step,
// Promote can be repeated; prepare then gets the store with what it has committed before.
//
// The errors are those of Open, *store.NotStandbyError, *store.NoCopyError, and those of prepare.
func Promote(dir string, opts Options, prepare func(*Store) error) (err error) {
	lock, err := lockStandby(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &store.NotStandbyError{Dir: dir}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	copying := filepath.Join(dir, copyingName)
	switch {
	case !isStandby(dir):
		return &store.NotStandbyError{Dir: dir}
	case !Exists(dir):
		return &store.NoCopyError{Dir: dir, Unfinished: fileExists(copying)}
	}
	_ = writeOwner(dir) // only a hint for those who find the directory in use
	err = prepareStore(filepath.Join(dir, fileName), opts.withDefaults(), prepare)
	removeOwner(dir) // before another process can open the store
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(copying), lock.Sync()); err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(dir, standbyName)), lock.Sync())
}
