package boltstore

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// opening is the check of a store that is being opened. The check runs before the store serves, or
// in the background while it serves.
type opening struct {
	file       *os.File
	background *backgroundCheck // the check in the background; nil if the store was checked at once
	log        *slog.Logger
	keepFormat bool // refuse a store of an older format with errOlderFormat, instead of an upgrade
}

var errOlderFormat = errors.New("the store has an older format")

// check prepares a check in the background if the store has all of the following, and otherwise
// checks the store at once:
//   - a good mark;
//   - a note that the newest commit is durable. Without it, that commit may have failed, or the end
//     of the process may have cut it off;
//   - a list of free pages. Without it, bbolt reads as many pages as a check does when it opens the
//     file, and panics at a lost one.
//
// check removes the mark until the check in the background has ended. A damaged page can end the
// process before the check finds that page (damage.go). Without a mark, the next start checks first
// and reports the damage, instead of ending in the same way.
func (o *opening) check(file *os.File) error {
	o.file = file
	o.warnOfClock(file)
	if !hasGoodMark(file) {
		return o.checkAtOnce(file)
	}
	unmark(file.Name())
	// the file may have commits of a killed process, which callers will read, so they must be
	// durable
	if err := file.Sync(); err != nil {
		return err
	}
	background, err := newBackgroundCheck(file)
	if err == nil && (background.free == noFreePage || !background.hasNote()) {
		return errors.Join(background.release(), o.checkAtOnce(file))
	}
	o.background = background
	return err
}

// warnOfClock logs if file was written at a time that has not come yet: the clock was set back
// while no process had the store, or was ahead when one had it. A minute is what clocks differ by
// when they are set to each other. A clock that is ahead now cannot be told from a long rest.
func (o *opening) warnOfClock(file *os.File) {
	info, err := file.Stat()
	if err != nil {
		return // the check meets it
	}
	if ahead := time.Until(info.ModTime()); ahead > time.Minute {
		o.log.Warn("the store was last written at a time that has not come yet, so the wall clock is behind, or was ahead: run_at, deadlines, retention and credentials follow it, leases do not",
			"store", file.Name(), "by", ahead.Round(time.Second))
	}
}

// checkAtOnce checks a store at once. If a loss of power may have cut off the newest commit,
// checkAtOnce takes it back, and logs that.
func (o *opening) checkAtOnce(file *os.File) error {
	err := o.checkOnly(file)
	if !errors.As(err, new(*store.TornError)) {
		return err
	}
	if err := takeBack(file); err != nil {
		return err
	}
	o.log.Warn("the last commit to the store was cut off by a loss of power and was taken back: it had not been acknowledged, unless the disk loses data that it reported as written",
		"store", file.Name())
	return nil
}

// checkOnly checks a store at once, and changes nothing.
func (o *opening) checkOnly(file *os.File) error {
	o.file = file
	return checkFile(file)
}

// pinPages keeps the pages that the check in the background will read from being overwritten.
func (o *opening) pinPages(db *bbolt.DB) (err error) {
	if o.background != nil {
		o.background.tx, err = db.Begin(false)
	}
	return err
}

// checkNow runs the check that was prepared for the background, if there is one, before the store
// serves.
func (o *opening) checkNow() error {
	if o.background == nil {
		return nil
	}
	err := damaged(o.file.Name(), catchFaults(o.background.check))
	return errors.Join(err, o.release())
}

// finish marks a store that was checked at once. Otherwise it starts the check in the background.
func (o *opening) finish(s *Store) {
	sound := func() { s.mark(o.file) }
	if o.background == nil {
		s.writeNote()
		sound()
		return
	}
	s.background = o.background
	s.pins.Add(1)
	s.background.run(sound, s.fail, func() { s.pins.Add(-1) })
}

// abort ends an opening that failed. It restores the mark that check removed, unless the error why
// is damage in the store.
func (o *opening) abort(s *Store, why error) error {
	if o.background != nil && !errors.As(why, new(*store.DamagedError)) && !errors.As(why, new(*store.CorruptError)) {
		s.mark(o.file)
	}
	return o.release()
}

// release releases the check in the background, if there is one.
func (o *opening) release() (err error) {
	if o.background != nil {
		err = o.background.release()
		o.background = nil
	}
	return err
}
