package boltstore

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// usedPart returns the part of a store's file that bbolt has ever written to.
func usedPart(t *testing.T, s *Store) []byte {
	t.Helper()
	file, err := os.Open(filepath.Clean(s.path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	content := make([]byte, s.usedBytes())
	if _, err := file.ReadAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return content
}

// withoutMetaPage returns the file after a commit, with the meta page of that commit as it was
// before. A process leaves this file if it ends just before the commit's last write, which is the
// meta page. withoutMetaPage modifies after.
func withoutMetaPage(before, after []byte) []byte {
	m, _ := newestMeta(after)
	at := m.tx % 2 * m.pageSize
	copy(after[at:][:m.pageSize], before[at:])
	return after
}

// After each commit, both that commit and the one before it are sound in the file: no page that one
// of them uses is in a list of free pages or was overwritten. This must hold whether or not a
// commit writes the list of free pages, and also while reads are under way.
func TestEachCommitAndTheOneBeforeAreSound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := mustOpen(t, t.TempDir())
	var readers []func()
	defer func() {
		for _, end := range readers {
			end()
		}
	}()
	listed := map[bool]int{}
	for range 40 {
		if rnd.IntN(4) == 0 {
			tx, err := s.begin(false)
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, func() { _ = tx.Rollback() })
		}
		if len(readers) > 0 && rnd.IntN(6) == 0 {
			i := rnd.IntN(len(readers))
			readers[i]()
			readers = append(readers[:i], readers[i+1:]...)
		}
		var b store.Batch
		for range 1 << rnd.IntN(9) {
			key := store.AppendSpacePrefix(nil, rnd.Uint32N(400))
			if rnd.IntN(3) == 0 {
				b.Delete(store.Spec, key)
			} else {
				b.PutSealed(store.Spec, key, 1, make([]byte, rnd.IntN(1000)))
			}
		}
		before := usedPart(t, s)
		unlisted := rnd.IntN(2) == 0
		if err := commitWithFreeList(s, &b, !unlisted); err != nil {
			t.Fatal(err)
		}
		listed[!unlisted]++
		after := usedPart(t, s)
		if err := checkData(after); err != nil {
			t.Fatalf("the file after a commit is not sound: %v", err)
		}
		if err := checkData(withoutMetaPage(before, after)); err != nil {
			t.Fatalf("the commit before the newest one is not sound in the file: %v", err)
		}
	}
	t.Logf("commits by whether they wrote the list of free pages: %v", listed)
}

// bbolt does not reuse freed pages that a read under way may need. If the process is killed then,
// the next Open must find these pages in the list of free pages and reuse them: the file stays
// sound and does not grow.
func TestFreeListHasThePagesThatWereKeptForReads(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	change := func(s *Store, value byte) {
		t.Helper()
		var b store.Batch
		for n := range uint32(500) {
			b.PutSealed(store.Spec, store.AppendSpacePrefix(nil, n), 1, append(make([]byte, 200), value))
		}
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	change(s, 1)
	tx, err := s.begin(false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for value := range byte(4) {
		change(s, value)
	}
	if s.freelistOmitted || s.db.Stats().PendingPageN == 0 {
		t.Fatalf("the last commit left the list out: %v; it lists %d pages that are kept for the read; want false and some pages",
			s.freelistOmitted, s.db.Stats().PendingPageN)
	}
	dir := dirWithFile(t, usedPart(t, s))
	killed := mustOpen(t, dir)
	size := killed.usedBytes()
	for value := range byte(4) {
		change(killed, value)
	}
	if err := checkData(usedPart(t, killed)); err != nil {
		t.Error(err)
	}
	if now := killed.usedBytes(); now > size {
		t.Errorf("the file grew from %d to %d bytes, want no growth because enough pages are free", size, now)
	}
}

// If Close cannot write the list of free pages, it removes the mark, so that the next Open checks
// the store first: the disk may have lost earlier writes, too.
func TestFailedFreeListRemovesTheMark(t *testing.T) {
	dir := markedStore(t)
	s := mustOpen(t, dir)
	s.background.done.Wait()
	var b store.Batch
	err := commitWithFreeList(s, &b, false)
	if err := errors.Join(err, lockedFile(s).Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil {
		t.Error("Close returns no error, want that of the file, which the test has closed already")
	}
	if hasMark(dir) {
		t.Error("the store has a mark after the failed write, want none")
	}
}

// commitWithFreeList commits b, and writes the list of free pages if listed is set.
func commitWithFreeList(s *Store, b *store.Batch, listed bool) error {
	c, err := s.beginCommit()
	if err != nil {
		return err
	}
	c.omitFreelist = new(!listed)
	c.Apply(b)
	if err := c.Write(); err != nil {
		return err
	}
	return c.Sync()
}
