// Package memstore is a store.Store in memory, for tests. Committed records survive Reopen, but not
// the end of the process.
package memstore

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/lessor-dev/lessor/store"
)

// Store is a store in memory; New makes one.
type Store struct {
	committing sync.Mutex                        // held by a running commit
	state      atomic.Pointer[state]             // newest committed state; nil when closed
	failed     atomic.Pointer[store.CommitError] // of an earlier commit
	hook       atomic.Pointer[Hook]              // nil: no hook
}

var _ store.Store = (*Store)(nil)

// Hook intercepts commits. Commit calls the hook, which calls apply or not, and returns the error
// for Commit. A hook can delay a commit, let it fail before or after it took effect, or inspect the
// batch. Only one commit at a time calls it.
type Hook func(ctx context.Context, b *store.Batch, apply func()) error

// New returns an empty store.
func New() *Store { return open(new(state)) }

// Restore reads what Snapshot wrote.
func Restore(r io.Reader) (*Store, error) {
	var b store.Batch
	if err := readSnapshot(r, &b); err != nil {
		return nil, err
	}
	return open(new(state).with(&b)), nil
}

func open(committed *state) *Store {
	s := new(Store)
	s.state.Store(committed)
	return s
}

// Reopen closes s and returns a store with all committed records, as a new process would find them
// after a crash. It does not wait for a running commit, which then has no effect. The new store has
// no hook.
func (s *Store) Reopen() *Store {
	committed := s.state.Swap(nil)
	if committed == nil {
		panic("memstore: Reopen of a closed store")
	}
	return open(committed)
}

// SetHook makes all commits that begin from now on call hook; nil removes the hook.
func (s *Store) SetHook(hook Hook) {
	if hook == nil {
		s.hook.Store(nil)
		return
	}
	s.hook.Store(&hook)
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, b *store.Batch) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	old, err := s.current()
	if err != nil {
		return err
	}
	closed := false
	apply := func() { closed = !s.state.CompareAndSwap(old, old.with(b)) }
	if err := s.intercept(ctx, b, apply); err != nil {
		s.failed.Store(&store.CommitError{Err: err})
		return s.failed.Load()
	}
	if closed {
		return store.ErrClosed
	}
	return nil
}

// Begin implements store.Store.
func (s *Store) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, s.Commit), nil
}

func (s *Store) intercept(ctx context.Context, b *store.Batch, apply func()) error {
	if hook := s.hook.Load(); hook != nil {
		return (*hook)(ctx, b, apply)
	}
	apply()
	return nil
}

// View implements store.Store.
func (s *Store) View(fn func(store.Reader) error) error {
	current, err := s.current()
	if err != nil {
		return err
	}
	return fn(current)
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(w io.Writer) (int64, error) {
	current, err := s.current()
	if err != nil {
		return 0, err
	}
	return current.writeTo(w)
}

// Stats implements store.Store. FileBytes is the size of a snapshot; nothing is free.
func (s *Store) Stats() store.Stats {
	n, _ := s.Snapshot(io.Discard) // a closed store has no size
	return store.Stats{FileBytes: n}
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.state.Store(nil)
	return nil
}

func (s *Store) current() (*state, error) {
	current := s.state.Load()
	if current == nil {
		return nil, store.ErrClosed
	}
	if failed := s.failed.Load(); failed != nil {
		return nil, failed
	}
	return current, nil
}
