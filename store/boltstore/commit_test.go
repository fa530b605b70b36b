package boltstore

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// written returns a commit of a key after its Write and before its Sync.
func written(t *testing.T, s *Store, key string) store.Tx {
	t.Helper()
	tx := applied(t, s, key)
	if err := tx.Write(); err != nil {
		t.Fatal(err)
	}
	return tx
}

// applied returns a commit of a key before its Write.
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

// A6: Write waits until the commit before is durable, so that a loss of power can cut off at most one commit.
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
		runtime.Gosched() // gives a Write that does not wait the time to return
	}
	durable.Store(true)
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	if <-early {
		t.Error("Write of the second commit failed, or returned before the first commit was durable")
	}
	<-early
}

// A10: if the flush of a commit fails, the commit that has begun meanwhile fails with the same error, and so does Begin. Close does not hang.
func TestFailedFlushTakesTheNextWithIt(t *testing.T) {
	s := mustOpen(t, filled(t))
	if s.background != nil {
		s.background.done.Wait() // it reads the file that is closed below
	}
	commitSome(t, s, 1, 1) // bbolt itself flushes the first commit after Open, in Write; from the second on, Sync does
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
		t.Error("Close returns no error, want that of the file, which the test has closed already")
	}
}

// A snapshot waits until the commit under way is durable, so that it never holds what a loss of power could undo.
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
				err = errors.New("beginDurable returned before the commit was durable")
			}
			err = errors.Join(err, tx.Rollback())
		}
		done <- err
	}()
	for range 1000 {
		runtime.Gosched() // gives a beginDurable that does not wait the time to return
	}
	durable.Store(true)
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !copied.Load() {
		t.Error(err)
	}
}
