package boltstore

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// commit is a read-write transaction of bbolt and its flush. The next commit begins before this
// flush, but changes only memory until the flush has ended. So the file never has more than one
// commit that a loss of power can undo. commit does not use bbolt's Batch, which runs functions
// again after an error.
type commit struct {
	store   *Store
	tx      *bbolt.Tx
	writers *writers
	number  uint64
	changes int
	// omitFreelist is whether the commit leaves out the list of free pages; nil means that it does
	// so if freelistTooLong says so.
	omitFreelist *bool
	err          error
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, b *store.Batch) error {
	return store.CommitInSteps(ctx, s, b)
}

// Begin implements store.Store.
func (s *Store) Begin(context.Context) (store.Tx, error) {
	c, err := s.beginCommit()
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *Store) beginCommit() (_ *commit, err error) {
	s.writing.Lock()
	defer func() {
		if err != nil {
			s.writing.Unlock()
		}
	}()
	if failed := s.failed.Load(); failed != nil {
		return nil, failed
	}
	tx, err := s.begin(true)
	switch {
	case errors.Is(err, store.ErrClosed):
		return nil, err
	case err != nil:
		return nil, s.fail(err)
	}
	c := &commit{store: s, tx: tx, number: uint64(tx.ID())}
	if err := s.requireNewest(tx.ID()-1, s.written); err != nil {
		c.abandon()
		return nil, err
	}
	c.err = s.guardedCall(func() (err error) {
		c.writers, err = newWriters(tx)
		return err
	})
	return c, nil
}

// Apply implements store.Tx.
func (c *commit) Apply(b *store.Batch) {
	c.changes += b.Len()
	if c.err == nil {
		c.err = c.store.guardedCall(func() error { return c.store.plan.apply(c.writers, b) })
	}
}

// Rollback implements store.Tx.
func (c *commit) Rollback() {
	c.abandon()
	c.store.writing.Unlock()
}

// abandon ends the transaction. In a damaged store it does not: bbolt would read pages in a
// goroutine of its own, whose panic nobody can recover.
func (c *commit) abandon() {
	if failed := c.store.failed.Load(); failed != nil && errors.As(failed, new(*store.DamagedError)) {
		c.store.stuck.Store(true)
		return
	}
	_ = c.tx.Rollback() // nothing was written to the file, so an error changes nothing
}

// Write implements store.Tx.
func (c *commit) Write() error {
	s := c.store
	s.flushing.Lock()
	if failed := s.failed.Load(); failed != nil {
		s.flushing.Unlock()
		c.Rollback()
		return failed
	}
	defer s.writing.Unlock()
	if err := c.write(); err != nil {
		defer s.flushing.Unlock()
		// Do not try again: after a failed sync, Linux regards the pages as written. A second sync
		// could succeed although the pages are lost.
		return s.fail(err)
	}
	return nil
}

func (c *commit) write() error {
	s, err := c.store, c.err
	if err == nil {
		err = s.guardedCall(c.writers.finish)
	}
	if err != nil {
		c.abandon()
		return err
	}
	if s.freelistOmitted = s.freelistTooLong(c.changes); c.omitFreelist != nil {
		s.freelistOmitted = *c.omitFreelist
	}
	s.db.NoFreelistSync = s.freelistOmitted
	if err := s.guardedCall(c.tx.Commit); err != nil {
		return err
	}
	s.written = int(c.number)
	return nil
}

// Sync implements store.Tx.
func (c *commit) Sync() error {
	s := c.store
	defer s.flushing.Unlock()
	if s.db.NoSync { // otherwise bbolt has synced in tx.Commit
		if err := s.db.Sync(); err != nil {
			return s.fail(err)
		}
	}
	s.setOutcome(func() { s.durable.Store(c.number) })
	if s.noteFile != nil {
		s.writeNote()
		s.db.NoSync = true
	}
	return nil
}
