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

// damageLeaf clears the first leaf of the specs, in place.
func damageLeaf(t *testing.T, dir string) {
	t.Helper()
	content := read(t, dir)
	m, _ := newestMeta(content)
	branch := content[order.Uint64(rootOf(t, content, "spec"))*m.pageSize:]
	clear(content[order.Uint64(branch[headerSize+8:])*m.pageSize:][:m.pageSize])
	overwrite(t, dir, content)
}

func hasMark(dir string) bool { return exists(filepath.Join(dir, markName)) }

// While a store is checked beside the service it has no mark, so that the start after one that died of what it read checks first. One that came to the end of the check,
// or was closed before, leaves a mark.
func TestMarkIsAwayUntilTheCheckHasEnded(t *testing.T) {
	dir := marking(t)
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var o opening
	if err := o.check(file); err != nil || o.later == nil {
		t.Fatalf("check = %v, later: %v", err, o.later != nil)
	}
	if hasMark(dir) {
		t.Error("there is a mark before the check")
	}
	if err := errors.Join(o.drop(), file.Close()); err != nil { // as the end of a process does
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		later bool
	}{{"after a start that died", false}, {"after one that was closed at once", true}, {"and again", true}} {
		s := mustOpen(t, dir)
		if (s.recheck != nil) != c.later {
			t.Errorf("%s: checked later: %v", c.name, s.recheck != nil)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir)
	s.recheck.done.Wait()
	if !hasMark(dir) {
		t.Error("there is no mark after the check")
	}
}

// A commit that fails while the store is checked leaves no mark, whichever of the two ends first.
func TestFailedStoreIsNotMarked(t *testing.T) {
	dir := marking(t)
	s := mustOpen(t, dir)
	s.recheck.done.Wait()
	_ = s.fail(io.ErrUnexpectedEOF)
	s.mark(lockedFile(s))
	if hasMark(dir) {
		t.Error("there is a mark")
	}
}

// bbolt believes the list of free pages: it is looked at before that, also where the rest is checked later.
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

// A store is checked before it is upgraded, whatever its mark says: an upgrade cannot be taken back.
func TestUpgradeChecksFirst(t *testing.T) {
	dir := marking(t)
	damageLeaf(t, dir)
	was := read(t, dir)
	if _, err := open(dir, Options{}.withDefaults(), upgrades); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("open = %v, want a DamagedError", err)
	}
	if !bytes.Equal(read(t, dir), was) {
		t.Error("a damaged store was changed")
	}

	dir = marking(t)
	s, err := open(dir, Options{}.withDefaults(), upgrades)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.recheck != nil || !hasMark(dir) {
		t.Errorf("checked again: %v, marked: %v", s.recheck != nil, hasMark(dir))
	}
}

// Who starts a newer version is told, once, that there is no way back to the one before.
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

// An Open that is refused leaves the file and its mark as they were, and free for the next one.
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
		t.Errorf("it was changed, or lost its mark: %v", !hasMark(dir))
	}
	if s, err = open(dir, Options{}.withDefaults(), upgrades); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A commit for which bbolt must map the file anew waits for the check, and closing the store ends that.
func TestRemapBesideTheCheck(t *testing.T) {
	for _, wait := range []bool{true, false} {
		s, err := Open(marking(t), Options{MapBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			var b store.Batch
			b.Put(store.Output, []byte("k"), make([]byte, 40<<20)) // the file has 16 MiB
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

// A mark is not enough where the newest commit has no note that it was durable: it may have been cut off, or have failed.
func TestCommitWithoutANoteIsCheckedFirst(t *testing.T) {
	dir := marking(t)
	content := read(t, dir)
	m, _ := newestMeta(content)
	clear(content[noteAt(m.tx, int(m.pageSize)):][:len(note(m.tx))])
	overwrite(t, dir, content)
	for _, later := range []bool{false, true} { // the first start notes it
		s := mustOpen(t, dir)
		if got := s.recheck != nil; got != later {
			t.Errorf("checked later: %v, want %v", got, later)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
