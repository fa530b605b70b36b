package boltstore

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// opening decides when a store is checked that is being opened: at once, or beside the service.
type opening struct {
	file  *os.File
	later *recheck // nil where it was checked at once
}

// check lets a store be checked later that has a good mark and a list of free pages. Without that list bbolt looks for them as it opens the
// file, reads as much for it as a check does, and must not meet a lost page.
//
// The mark is away until that check has ended. For bbolt panics where it reads a lost page, and may do so before the check finds it: without a mark, the next start
// checks first and says what is wrong, instead of dying in the same way.
func (o *opening) check(file *os.File) error {
	o.file = file
	if !marked(file) {
		return checkFile(file)
	}
	unmark(file.Name())
	later, err := newRecheck(file)
	if err == nil && later.free == noFreePage {
		return errors.Join(later.release(), checkFile(file))
	}
	o.later = later
	return err
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

// recheck is the check of a store beside the service. What it reads are the pages of the newest commit from before the store was opened.
type recheck struct {
	path string
	*checker
	tx   *bbolt.Tx // keeps those pages
	stop chan struct{}
	done sync.WaitGroup
}

var errStopped = errors.New("the store was closed")

// newRecheck looks at the meta pages of a file that nobody writes to yet, and at its list of free pages.
func newRecheck(file *os.File) (*recheck, error) {
	data, err := mapFile(file)
	if err != nil {
		return nil, err
	}
	r := &recheck{path: file.Name(), stop: make(chan struct{})}
	err = reading(func() (err error) {
		if r.checker, err = newChecker(data); err != nil {
			return err
		}
		r.seen = newPageSet(r.pages) // of no page is known yet that it is in use
		return r.freeList()          // bbolt believes it, and dies of one that is none
	})
	if err != nil {
		return nil, errors.Join(damaged(r.path, err), syscall.Munmap(data))
	}
	return r, nil
}

// release lets the pages go.
func (r *recheck) release() (err error) {
	if r.tx != nil {
		err = r.tx.Rollback()
	}
	return errors.Join(err, syscall.Munmap(r.data))
}

// run checks until it has come to the end or the store is closed. Unless it has found damage, which it gives failed, it calls sound: also
// where it was closed early, for it has not died of damage.
func (r *recheck) run(sound func(), failed func(error) error) {
	r.pace = r.breathe()
	r.done.Go(func() {
		defer func() { _ = r.release() }() // what was only read has nothing to lose
		if err := reading(r.check); err != nil && !errors.Is(err, errStopped) {
			_ = failed(damaged(r.path, err)) // further calls return it
			return
		}
		sound()
	})
}

// breathe leaves half of the time of one processor to the service.
func (r *recheck) breathe() func() error {
	const (
		pages = 256 // a megabyte, about a millisecond
		rest  = time.Millisecond
	)
	n := 0
	return func() error {
		if n++; n%pages != 0 {
			return nil
		}
		select {
		case <-r.stop:
			return errStopped
		case <-time.After(rest):
			return nil
		}
	}
}

// end waits until nothing is read any more.
func (r *recheck) end() {
	close(r.stop)
	r.done.Wait()
}
