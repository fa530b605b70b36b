package boltstore

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/reserve"
)

// writtenCommit returns a commit of a key after its Write and before its Sync.
func writtenCommit(t *testing.T, s *Store, key string) store.Tx {
	t.Helper()
	tx := appliedCommit(t, s, key)
	if err := tx.Write(); err != nil {
		t.Fatal(err)
	}
	return tx
}

// appliedCommit returns a commit of a key before its Write.
func appliedCommit(t *testing.T, s *Store, key string) store.Tx {
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

// A6: Write waits until the commit before it is durable, so that a loss of power can cut off at
// most one commit.
func TestWriteWaitsForTheFlushBefore(t *testing.T) {
	s := mustOpen(t, filledStore(t))
	first := writtenCommit(t, s, "first")
	second := appliedCommit(t, s, "second")
	done := make(chan error, 1)
	go func() { done <- second.Write() }()
	if !blocks("(*commit).Write", done) {
		t.Error("Write of the second commit returned before the first commit was durable")
	}
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-done, second.Sync()); err != nil {
		t.Error(err)
	}
}

// blocks waits until another goroutine is within a call of function and sleeps or waits for a lock
// or a condition. Then it returns true. If the call ends first and its result is in done, blocks
// returns false.
func blocks[T any](function string, done <-chan T) bool {
	stacks := make([]byte, 1<<20)
	for len(done) == 0 {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, function) && (strings.Contains(stack, " [sync.") || strings.Contains(stack, " [sleep")) {
				return true
			}
		}
		runtime.Gosched()
	}
	return false
}

// A10: if the flush of a commit fails, the next commit, which has already begun, fails with the
// same error, and so does Begin. That commit is not even written: its flush could succeed although
// pages of the commit before are lost. Close does not hang.
func TestFailedFlushFailsTheNextCommit(t *testing.T) {
	dir := filledStore(t)
	s := mustOpen(t, dir)
	if s.background != nil {
		s.background.done.Wait() // because it reads the file, which the test replaces below
	}
	commitSome(t, s, 1, 1) // bbolt itself flushes the first commit after Open, in Write; from the second on, Sync does
	first := writtenCommit(t, s, "first")
	second := appliedCommit(t, s, "second")
	file := lockedFileField(s)
	sound := *file
	closed, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	*file = closed
	failed := first.Sync()
	*file = sound // from here on, the disk works again
	if commit := new(store.CommitError); !errors.As(failed, &commit) {
		t.Fatalf("Sync = %v, want a CommitError", failed)
	}
	switch err := second.Write(); {
	case err == nil:
		t.Errorf("the second commit was written, and its Sync returned %v", second.Sync())
	case !errors.Is(err, failed):
		t.Errorf("Write = %v, want %v", err, failed)
	}
	if _, err := s.Begin(t.Context()); !errors.Is(err, failed) {
		t.Errorf("Begin = %v, want %v", err, failed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A commit with a change that cannot be applied fails as a whole. Nothing of it is written.
func TestChangeThatCannotBeAppliedFailsTheCommit(t *testing.T) {
	dir := filledStore(t)
	s := mustOpen(t, dir)
	var b store.Batch
	b.PutSealed(store.Spec, []byte("good"), 1, nil)
	b.PutSealed(store.Spec, nil, 1, nil) // bbolt has no empty keys
	err := s.Commit(t.Context(), &b)
	if commit := new(store.CommitError); !errors.As(err, &commit) {
		t.Errorf("Commit = %v, want a CommitError", err)
	}
	if tx, err := s.Begin(t.Context()); err == nil {
		tx.Rollback()
		t.Error("the store goes on after that")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	err = mustOpen(t, dir).View(func(r store.Reader) error {
		if r.Get(store.Spec, []byte("good")) != nil {
			t.Error("a part of the commit is in the store")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A Peek reads what View would have to wait for, also through the store that keeps space back.
func TestPeekDoesNotWaitForTheFlush(t *testing.T) {
	s := mustOpen(t, filledStore(t))
	first := writtenCommit(t, s, "first")
	for name, st := range map[string]store.Store{"the store": s, "the guarded one": reserve.Guard(s, nil)} {
		found := false
		err := store.Peek(st, func(r store.Reader) error {
			found = r.Get(store.Spec, []byte("first")) != nil
			return nil
		})
		if !found || err != nil {
			t.Errorf("Peek of %s finds the commit that was written: %t, error %v; want true", name, found, err)
		}
	}
	if err := first.Sync(); err != nil {
		t.Error(err)
	}
}

// A snapshot waits until the commit under way is durable, so that it never contains a commit that a
// loss of power can still undo.
func TestSnapshotWaitsForTheFlush(t *testing.T) {
	s := mustOpen(t, filledStore(t))
	first := writtenCommit(t, s, "first")
	done := make(chan error, 1)
	go func() {
		tx, err := s.beginDurable()
		if err == nil {
			err = tx.Rollback()
		}
		done <- err
	}()
	if !blocks("(*Store).beginDurable", done) {
		t.Error("beginDurable returned before the commit was durable")
	}
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Close waits until the commit under way is durable: the process may end after Close. Later commits
// get ErrClosed, and the file is sound.
func TestCloseDuringCommits(t *testing.T) {
	dir := filledStore(t)
	s := mustOpen(t, dir)
	if s.background != nil {
		s.background.done.Wait() // so that below, Close waits for nothing but the commit
	}
	first := appliedCommit(t, s, "first")
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	if !blocks("(*Store).Close", done) {
		t.Error("Close returned before the commit was written")
	}
	if err := first.Write(); err != nil {
		t.Fatal(err)
	}
	if !blocks("(*Store).Close", done) {
		t.Error("Close returned before the commit was durable")
	}
	if err := errors.Join(first.Sync(), <-done); err != nil {
		t.Error(err)
	}
	if err := s.Commit(t.Context(), new(store.Batch)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Commit = %v, want ErrClosed", err)
	}
	content := readFile(t, dir)
	if err := checkData(content); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(content, []byte("first")) {
		t.Error("the file does not have the commit that was under way")
	}
}

// If a commit has to map more of the file and cannot, a read that waited for the new mapping says
// why the commit has failed. It may be a read of the engine's loop, which ends the process with the
// error that it gets.
func TestReadSaysWhyTheFileIsNotMapped(t *testing.T) {
	unmapped := func() *Store {
		s, err := Open(t.TempDir(), Options{MapBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		s.db.MmapFlags = -1 // no system knows all of these
		err = s.db.Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(store.Meta.String())).Put([]byte("large"), make([]byte, 40<<20))
		})
		if err == nil {
			t.Fatal("the file was mapped")
		}
		return s
	}
	read := func(s *Store) error { return s.View(func(store.Reader) error { return nil }) }
	if err := read(unmapped()); !errors.As(err, new(*store.CommitError)) {
		t.Errorf("View = %v, want a CommitError", err)
	}

	s, why, got := unmapped(), errors.New("why"), make(chan error)
	over := s.pause() // stands for the commit
	go func() { got <- read(s) }()
	_ = s.fail(why)
	over()
	if err := <-got; !errors.Is(err, why) {
		t.Errorf("View during the commit = %v, want %v", err, why)
	}
}
