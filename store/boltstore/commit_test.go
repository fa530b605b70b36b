package boltstore

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// written is a commit of a key that waits for its Sync.
func written(t *testing.T, s *Store, key string) store.Tx {
	t.Helper()
	tx := applied(t, s, key)
	if err := tx.Write(); err != nil {
		t.Fatal(err)
	}
	return tx
}

func applied(t *testing.T, s *Store, key string) store.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := new(store.Batch)
	b.PutSealed(store.Spec, []byte(key), 1, nil)
	tx.Apply(b)
	return tx
}

// Nothing of a commit is written before the one before is durable, so that a loss of power never finds two of them that are not (A6).
func TestWriteWaitsForTheFlushBefore(t *testing.T) {
	s := mustOpen(t, filled(t))
	first := written(t, s, "first")
	second := applied(t, s, "second")
	var durable atomic.Bool
	early := make(chan bool)
	go func() {
		err := second.Write()
		early <- err != nil || !durable.Load()
		_ = second.Sync()
		close(early)
	}()
	for range 1000 {
		runtime.Gosched() // a Write that does not wait returns
	}
	durable.Store(true)
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	if <-early {
		t.Error("the second commit was written before the first was durable")
	}
	<-early
}

// Where a flush fails, the commit that has begun meanwhile fails too, and the store can be closed (A10).
func TestFailedFlushTakesTheNextWithIt(t *testing.T) {
	s := mustOpen(t, filled(t))
	if s.recheck != nil {
		s.recheck.done.Wait() // it reads the file that is closed below
	}
	commitSome(t, s, 1, 1) // from the second on, the flush is the store's
	first := written(t, s, "first")
	second := applied(t, s, "second")
	if err := lockedFile(s).Close(); err != nil {
		t.Fatal(err)
	}
	failed := first.Sync()
	if commit := new(store.CommitError); !errors.As(failed, &commit) {
		t.Fatalf("Sync = %v, want a CommitError", failed)
	}
	if err := second.Write(); !errors.Is(err, failed) {
		t.Errorf("Write = %v, want %v", err, failed)
	}
	if _, err := s.Begin(t.Context()); !errors.Is(err, failed) {
		t.Errorf("Begin = %v, want %v", err, failed)
	}
	if err := s.Close(); err == nil {
		t.Error("a file was closed twice")
	}
}

// A copy and the end of the store wait for commits under way.
func TestSnapshotWaitsForTheFlush(t *testing.T) {
	s := mustOpen(t, filled(t))
	first := written(t, s, "first")
	var durable, copied atomic.Bool
	done := make(chan error)
	go func() {
		tx, err := s.beginDurable()
		if err == nil {
			copied.Store(true)
			if !durable.Load() {
				err = errors.New("it read what was not durable")
			}
			err = errors.Join(err, tx.Rollback())
		}
		done <- err
	}()
	for range 1000 {
		runtime.Gosched() // a copy that does not wait has begun
	}
	durable.Store(true)
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !copied.Load() {
		t.Error(err)
	}
}
