package boltstore

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

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
