package boltstore

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

// backgroundCheck is the check of a store in the background, while the store serves. It reads the
// pages of the commit that was the newest when the store was opened.
type backgroundCheck struct {
	path string
	*checker
	tx   *bbolt.Tx // keeps those pages from being overwritten
	stop chan struct{}
	done sync.WaitGroup
}

var errStopped = errors.New("the store was closed")

// newBackgroundCheck checks the meta pages and the list of free pages of a file. Nobody may write
// to the file yet.
func newBackgroundCheck(file *os.File) (*backgroundCheck, error) {
	data, err := mapFile(file)
	if err != nil {
		return nil, err
	}
	b := &backgroundCheck{path: file.Name(), stop: make(chan struct{})}
	err = catchFaults(func() (err error) {
		if b.checker, err = newChecker(data); err != nil {
			return err
		}
		b.seen = newPageSet(b.pages) // empty: no page was read yet
		return b.freeList()          // bbolt does not check the list, and panics if it is not one
	})
	if err != nil {
		return nil, errors.Join(damaged(b.path, err), syscall.Munmap(data))
	}
	return b, nil
}

// release ends the transaction that keeps the pages, and unmaps the file.
func (b *backgroundCheck) release() (err error) {
	if b.tx != nil {
		err = b.tx.Rollback()
	}
	return errors.Join(err, syscall.Munmap(b.data))
}

// run starts the check, which ends when all pages are checked or the store is closed. If the check
// has found damage, it calls failed. Otherwise it calls sound, even if the store was closed early:
// the mark may return, since the process did not die of damage. At the end it releases the pages
// and calls released.
func (b *backgroundCheck) run(sound func(), failed func(error) error, released func()) {
	b.pace = b.throttle()
	b.done.Go(func() {
		defer released()
		defer func() { _ = b.release() }() // the check only read, so an error does no harm
		if err := catchFaults(b.check); err != nil && !errors.Is(err, errStopped) {
			_ = failed(damaged(b.path, err)) // further calls return it
			return
		}
		sound()
	})
}

// throttle returns a function that pauses after every 256 pages, so that the check uses at most
// about half of one processor. Its error is errStopped.
func (b *backgroundCheck) throttle() func() error {
	const (
		pages = 256 // 1 MiB, which takes about a millisecond to check
		rest  = time.Millisecond
	)
	n := 0
	return func() error {
		if n++; n%pages != 0 {
			return nil
		}
		select {
		case <-b.stop:
			return errStopped
		case <-time.After(rest):
			return nil
		}
	}
}

// stopAndWait stops the check and waits until it has ended.
func (b *backgroundCheck) stopAndWait() {
	close(b.stop)
	b.done.Wait()
}
