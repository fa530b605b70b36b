package boltstore

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lessor-dev/lessor/store"
)

// commit is a read-write transaction of bbolt and its flush. Between the two the next one begins, which changes nodes in memory alone until this flush is over: at no time is
// there more than one commit in the file that may be lost. bbolt's own Batch is not used, since it runs functions again after an error.
type commit struct {
	store   *Store
	tx      *bbolt.Tx
	writers *writers
	number  uint64
	changes int
	// unlisted: it leaves the list of free pages out; nil: where that is long.
	unlisted *bool
	err      error
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, b *store.Batch) error {
	c, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	c.Apply(b)
	if err := c.Write(); err != nil {
		return err
	}
	return c.Sync()
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
	tx, err := s.db.Begin(true)
	switch {
	case err == nil:
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return nil, store.ErrClosed
	default:
		return nil, s.fail(err)
	}
	c := &commit{store: s, tx: tx, number: uint64(tx.ID())}
	c.writers, c.err = newWriters(tx)
	return c, nil
}

// Apply implements store.Tx.
func (c *commit) Apply(b *store.Batch) {
	c.changes += b.Len()
	if c.err == nil {
		c.err = c.store.plan.apply(c.writers, b)
	}
}

// Rollback implements store.Tx.
func (c *commit) Rollback() {
	_ = c.tx.Rollback() // nothing was written
	c.store.writing.Unlock()
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
		// Trying again could succeed and hide the loss: after a failed sync Linux takes the pages for written.
		return s.fail(err)
	}
	return nil
}

func (c *commit) write() error {
	s, err := c.store, c.err
	if err == nil {
		err = c.writers.finish()
	}
	if err != nil {
		_ = c.tx.Rollback() // the error says more
		return err
	}
	if s.unlisted = s.manyFree(c.changes); c.unlisted != nil {
		s.unlisted = *c.unlisted
	}
	s.db.NoFreelistSync = s.unlisted
	return c.tx.Commit()
}

// Sync implements store.Tx.
func (c *commit) Sync() error {
	s := c.store
	defer s.flushing.Unlock()
	if s.db.NoSync { // else bbolt has done so
		if err := s.db.Sync(); err != nil {
			return s.fail(err)
		}
	}
	s.ended(func() { s.durable.Store(c.number) })
	if s.notes != nil {
		s.note()
		s.db.NoSync = true
	}
	return nil
}
