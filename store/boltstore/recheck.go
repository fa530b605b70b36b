package boltstore

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

// arrival decides when a store is checked that is being opened: at once, or beside the service.
type arrival struct {
	file  *os.File
	later *recheck // nil where it was checked at once
}

// check lets a store be checked later that has a good mark and a list of free pages. Without that list bbolt looks for them as it opens the
// file, reads as much for it as a check does, and must not meet a lost page.
func (a *arrival) check(file *os.File) error {
	a.file = file
	if !marked(file) {
		return checkFile(file)
	}
	later, err := newRecheck(file)
	if err == nil && later.free == noFreePage {
		return errors.Join(later.release(), checkFile(file))
	}
	a.later = later
	return err
}

// pin keeps what is to be checked later from being written over.
func (a *arrival) pin(db *bbolt.DB) (err error) {
	if a.later != nil {
		a.later.tx, err = db.Begin(false)
	}
	return err
}

// serve marks a store that was checked, and begins to check one that was not.
func (a *arrival) serve(s *Store) {
	if a.later == nil {
		setMark(a.file)
		return
	}
	s.recheck = a.later
	s.recheck.run(s.fail)
}

// drop forgets a store that could not be opened.
func (a *arrival) drop() error {
	if a.later == nil {
		return nil
	}
	return a.later.release()
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

// newRecheck looks at the meta pages of a file that nobody writes to yet.
func newRecheck(file *os.File) (*recheck, error) {
	data, err := mapFile(file)
	if err != nil {
		return nil, err
	}
	r := &recheck{path: file.Name(), stop: make(chan struct{})}
	err = reading(func() (err error) {
		r.checker, err = newChecker(data)
		return err
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

// run checks until it has come to the end or the store is closed, and gives failed what it finds.
func (r *recheck) run(failed func(error) error) {
	r.pace = r.breathe()
	r.done.Go(func() {
		defer func() { _ = r.release() }() // what was only read has nothing to lose
		if err := reading(r.check); err != nil && !errors.Is(err, errStopped) {
			_ = failed(damaged(r.path, err)) // further calls return it
		}
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
