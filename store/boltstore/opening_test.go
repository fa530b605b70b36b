package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// damageLeaf clears the first leaf page of keyspace Spec in the file of a store. Opening the store does not read that page.
func damageLeaf(t *testing.T, dir string) {
	t.Helper()
	content := read(t, dir)
	m, _ := newestMeta(content)
	branch := content[order.Uint64(rootOf(t, content, "spec"))*m.pageSize:]
	clear(content[order.Uint64(branch[headerSize+8:])*m.pageSize:][:m.pageSize])
	overwrite(t, dir, content)
}

func hasMark(dir string) bool { return fileExists(filepath.Join(dir, markName)) }

// While a store is checked in the background, it has no mark: if bbolt kills the process because of a damaged page, the next start must check the
// store first. The mark is set when the check has ended, or when the store is closed before.
func TestMarkIsAwayUntilTheCheckHasEnded(t *testing.T) {
	dir := marking(t)
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var o opening
	if err := o.check(file); err != nil || o.background == nil {
		t.Fatalf("check = %v, and it runs in the background: %v; want no error and true", err, o.background != nil)
	}
	if hasMark(dir) {
		t.Error("there is a mark before the check")
	}
	if err := errors.Join(o.release(), file.Close()); err != nil { // what the system does when a process dies
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		later bool
	}{{"after a start that died", false}, {"after one that was closed at once", true}, {"and again", true}} {
		s := mustOpen(t, dir)
		if (s.background != nil) != c.later {
			t.Errorf("%s: the check runs in the background: %v, want %v", c.name, s.background != nil, c.later)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir)
	s.background.done.Wait()
	if !hasMark(dir) {
		t.Error("there is no mark after the check")
	}
}

// A store of which a commit has failed has no mark, whether the check in the background ends before the failure or after it.
func TestFailedStoreIsNotMarked(t *testing.T) {
	dir := marking(t)
	s := mustOpen(t, dir)
	s.background.done.Wait()
	_ = s.fail(io.ErrUnexpectedEOF)
	if hasMark(dir) {
		t.Error("there is a mark after the check and then a failure")
	}
	s.mark(lockedFile(s))
	if hasMark(dir) {
		t.Error("there is a mark after a failure and then the end of the check")
	}
}

// bbolt trusts the list of free pages. So Open checks the list before bbolt reads it, even if everything else is checked in the background.
func TestDamagedFreeListIsRefusedAtOnce(t *testing.T) {
	dir := marking(t)
	content := read(t, dir)
	m, _ := newestMeta(content)
	clear(content[m.free*m.pageSize:][:m.pageSize])
	overwrite(t, dir, content)
	if _, err := Open(dir, Options{}); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("Open = %v, want a DamagedError", err)
	}
}

// A store is checked before it is upgraded, also if it has a mark, because an upgrade cannot be undone. After the upgrade it is not checked again.
func TestUpgradeChecksFirst(t *testing.T) {
	dir := marking(t)
	damageLeaf(t, dir)
	was := read(t, dir)
	if _, err := open(dir, Options{}.withDefaults(), upgrades); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("open = %v, want a DamagedError", err)
	}
	if !bytes.Equal(read(t, dir), was) {
		t.Error("open changed a damaged store")
	}

	dir = marking(t)
	s, err := open(dir, Options{}.withDefaults(), upgrades)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.background != nil || !hasMark(dir) {
		t.Errorf("after the upgrade it is checked again: %v, and it has a mark: %v; want false and true", s.background != nil, hasMark(dir))
	}
}

// An upgrade is logged, with the old and the new format, because earlier versions cannot open the store any more. A start without an upgrade logs
// nothing.
func TestUpgradeIsTold(t *testing.T) {
	dir := marking(t)
	told := fmt.Sprintf("from=%d to=%d", store.Current().Format(), upgrades.Format())
	for _, want := range []string{told, ""} {
		var log strings.Builder
		s, err := open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults(), upgrades)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if (want == "") != (log.String() == "") || !strings.Contains(log.String(), want) {
			t.Errorf("the log of the start: %q, want %q", log.String(), want)
		}
	}
}

// An Open that refuses a marked store for its format changes neither the file nor the mark, and releases the lock.
func TestRefusedWhileMarked(t *testing.T) {
	dir := marking(t)
	s, err := open(dir, Options{}.withDefaults(), upgrades)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	was := read(t, dir)
	for range 2 {
		if _, err := Open(dir, Options{}); !errors.As(err, new(*store.NewerFormatError)) {
			t.Errorf("Open = %v, want a NewerFormatError", err)
		}
	}
	if !bytes.Equal(read(t, dir), was) || !hasMark(dir) {
		t.Errorf("the file is unchanged: %v; it has a mark: %v; want true for both", bytes.Equal(read(t, dir), was), hasMark(dir))
	}
	if s, err = open(dir, Options{}.withDefaults(), upgrades); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A commit for which bbolt must map the file anew waits for reads under way, and so for the check in the background. It must succeed when the check
// ends. Close, which ends the check early, must not hang.
func TestRemapBesideTheCheck(t *testing.T) {
	for _, wait := range []bool{true, false} {
		s, err := Open(marking(t), Options{MapBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			var b store.Batch
			b.Put(store.Output, []byte("k"), make([]byte, 40<<20)) // the file has 16 MiB, and MapBytes leaves no room
			done <- s.Commit(t.Context(), &b)
		}()
		if wait {
			err = <-done
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
		if !wait {
			if err := <-done; err != nil && !errors.Is(err, store.ErrClosed) {
				t.Error(err)
			}
		}
	}
}

// If the newest commit has no note that it was durable, the store is checked first even with a mark: that commit may have been cut off, or have
// failed. The check then adds the note.
func TestCommitWithoutANoteIsCheckedFirst(t *testing.T) {
	dir := marking(t)
	content := read(t, dir)
	m, _ := newestMeta(content)
	clear(content[noteAt(m.tx, int(m.pageSize)):][:len(encodeNote(m.tx))])
	overwrite(t, dir, content)
	for _, later := range []bool{false, true} {
		s := mustOpen(t, dir)
		if got := s.background != nil; got != later {
			t.Errorf("the check runs in the background: %v, want %v", got, later)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
