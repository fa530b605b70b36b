package boltstore

import (
	"errors"
	"log/slog"
	"os"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// opening decides when a store is checked that is being opened: at once, or beside the service.
type opening struct {
	file     *os.File
	later    *recheck // nil where it was checked at once
	tookBack bool
}

// check lets a store be checked later that has a good mark, a note that its newest commit was durable, and a list of free pages. A commit without a note may have been cut off by the
// end of its process, or have failed. Without that list bbolt looks for them as it opens the file, reads as much for it as a check does, and must not meet a lost page.
//
// The mark is away until that check has ended. For bbolt panics where it reads a lost page, and may do so before the check finds it: without a mark, the next start
// checks first and says what is wrong, instead of dying in the same way.
func (o *opening) check(file *os.File) error {
	o.file = file
	if !marked(file) {
		return o.checkFirst(file)
	}
	unmark(file.Name())
	if err := file.Sync(); err != nil { // what a process wrote that was killed is there, and would be told of
		return err
	}
	later, err := newRecheck(file)
	if err == nil && (later.free == noFreePage || !later.noted()) {
		return errors.Join(later.release(), o.checkFirst(file))
	}
	o.later = later
	return err
}

// checkFirst checks a store at once. A newest commit that is not whole is taken back, as that which was under way when the power went.
func (o *opening) checkFirst(file *os.File) error {
	o.file = file
	err := checkFile(file)
	if !errors.As(err, new(*store.TornError)) {
		return err
	}
	err = takeBack(file)
	o.tookBack = err == nil
	return err
}

// tell says that a commit was taken back.
func (o *opening) tell(log *slog.Logger) {
	if o.tookBack {
		log.Warn("the last commit to the store was cut off by a loss of power and was taken back: it had not been acknowledged, unless the disk loses data that it reported as written",
			"store", o.file.Name())
	}
}

// pin keeps what is to be checked later from being written over.
func (o *opening) pin(db *bbolt.DB) (err error) {
	if o.later != nil {
		o.later.tx, err = db.Begin(false)
	}
	return err
}

// checkNow checks a store that was to be checked later.
func (o *opening) checkNow() error {
	if o.later == nil {
		return nil
	}
	err := damaged(o.file.Name(), reading(o.later.check))
	return errors.Join(err, o.drop())
}

// serve marks a store that was checked, and begins to check one that was not.
func (o *opening) serve(s *Store) {
	sound := func() { s.mark(o.file) }
	if o.later == nil {
		s.note()
		sound()
		return
	}
	s.recheck = o.later
	s.recheck.run(sound, s.fail)
}

// refuse drops a store that is not opened, and gives its mark back unless why is what was found in it.
func (o *opening) refuse(s *Store, why error) error {
	if o.later != nil && !errors.As(why, new(*store.DamagedError)) && !errors.As(why, new(*store.CorruptError)) {
		s.mark(o.file)
	}
	return o.drop()
}

// drop forgets what was to be checked later.
func (o *opening) drop() (err error) {
	if o.later != nil {
		err = o.later.release()
		o.later = nil
	}
	return err
}
