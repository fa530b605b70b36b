package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/store"
)

// markedStore returns the directory of a closed store with a valid mark. It skips the test if the
// system does not provide what a mark needs.
func markedStore(t *testing.T) (dir string) {
	t.Helper()
	dir = filledStore(t)
	if !fileExists(filepath.Join(dir, markName)) {
		t.Skip("the file system or the machine does not provide what a mark needs")
	}
	return dir
}

// overwrite writes content into the file of a store, which stays the same file, so that its mark
// stays valid.
func overwrite(t *testing.T, dir string, content []byte) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(content, 0)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// Open checks a store before it returns, unless a mark says that this same file was found sound
// since the machine started. Then the check runs in the background. In all cases of the table the
// file is sound: a copy of it can be opened.
func TestStoreWithAValidMarkIsCheckedInTheBackground(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(t *testing.T, dir string)
		inBackground bool
	}{
		{"nothing has changed", func(*testing.T, string) {}, true},
		{"the machine was restarted", func(t *testing.T, dir string) {
			t.Helper()
			mark := filepath.Join(dir, markName)
			text, err := os.ReadFile(mark)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(mark, append([]byte(`{"boot":"another","was":`), append(text, '}')...), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"the mark is torn", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Truncate(filepath.Join(dir, markName), 20); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"the mark is missing", func(_ *testing.T, dir string) { unmark(filepath.Join(dir, fileName)) }, false},
		{"the newest commit left out the list of free pages", func(t *testing.T, dir string) {
			t.Helper()
			s := mustOpen(t, dir)
			err := commitWithFreeList(s, new(store.Batch), false)
			killed := readFile(t, dir)
			if err := errors.Join(err, s.Close()); err != nil { // Close writes the list
				t.Fatal(err)
			}
			overwrite(t, dir, killed)
		}, false},
		{"another file has replaced the store", func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, fileName)
			content := readFile(t, dir)
			if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := markedStore(t)
			c.change(t, dir)
			if s := mustOpen(t, dir); (s.background != nil) != c.inBackground {
				t.Errorf("the check runs in the background: %v, want %v", s.background != nil, c.inBackground)
			}
			if s, err := OpenReadOnly(dirWithFile(t, readFile(t, dir)), Options{}); err != nil {
				t.Error(err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A mark that this user cannot write, such as one of root, is replaced. Otherwise each later start
// would check the store before it serves. A directory stands for such a mark, because not even root
// can write to it.
func TestMarkThatCannotBeWrittenIsReplaced(t *testing.T) {
	dir := markedStore(t)
	mark := filepath.Join(dir, markName)
	if err := errors.Join(os.Remove(mark), os.Mkdir(mark, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, later := range []bool{false, true} {
		s := mustOpen(t, dir)
		if (s.background != nil) != later {
			t.Errorf("the check runs in the background: %v, want %v", s.background != nil, later)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// If the check in the background finds damage, all later calls fail with a DamagedError, and the
// next Open refuses the store.
func TestDamageFoundInTheBackgroundFailsAllCalls(t *testing.T) {
	dir := markedStore(t)
	damageLeaf(t, dir)
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatalf("Open = %v, want no error, because the check runs in the background", err)
	}
	s.background.done.Wait()
	var b store.Batch
	b.Put(store.Task, []byte("k"), []byte("v"))
	for name, err := range map[string]error{"Commit": s.Commit(t.Context(), &b), "View": s.View(func(store.Reader) error { return nil })} {
		if !errors.As(err, new(*store.DamagedError)) {
			t.Errorf("%s = %v, want a DamagedError", name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("Open = %v, want a DamagedError", err)
	}
}

// After a failed commit the store has no mark, so that the next Open checks first: the disk may
// have lost earlier writes, too.
func TestFailedCommitRemovesTheMark(t *testing.T) {
	dir := markedStore(t)
	s, err := Open(dir, Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Put(store.Output, []byte("k"), make([]byte, 64<<20))
	if err := s.Commit(t.Context(), &b); err == nil {
		t.Fatal("a commit beyond MaxBytes did not fail")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s := mustOpen(t, dir); s.background != nil {
		t.Error("Open after a failed commit did not check the store first")
	}
}

// The check in the background reads the store as it was at Open, also while commits change it, and
// finds it sound. Close ends the check.
func TestBackgroundCheckDuringCommits(t *testing.T) {
	dir := markedStore(t)
	for round := range 6 {
		s := mustOpen(t, dir)
		if s.background == nil {
			t.Fatal("the store was checked before Open returned: an earlier round left no mark")
		}
		for n := range 20 {
			var b store.Batch
			for key := range 20 {
				b.PutSealed(store.Spec, store.AppendSpacePrefix(nil, uint32(key*n)), 1,
					fmt.Appendf(nil, "%d of round %d", n, round))
			}
			b.Delete(store.Spec, store.AppendSpacePrefix(nil, uint32(round*n)))
			if err := s.Commit(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		if round%2 == 0 {
			s.background.done.Wait()
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkData(readFile(t, dir)); err != nil {
		t.Error(err)
	}
}

// Commits do not overwrite the pages that a check in the background has still to read: their new
// content would look like damage.
func TestPagesAreKeptForTheCheck(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	records := func(round int) *store.Batch {
		b := new(store.Batch)
		for n := range uint32(5000) { // a check pauses after 256 pages
			b.PutSealed(store.Spec, store.AppendSpacePrefix(nil, n), 1, bytes.Repeat([]byte{byte(round)}, 400))
		}
		return b
	}
	if err := errors.Join(s.Commit(t.Context(), records(0)), s.Close()); err != nil {
		t.Fatal(err)
	}
	if !hasMark(dir) {
		t.Skip("the file system or the machine does not provide what a mark needs")
	}
	synctest.Test(t, func(t *testing.T) { // so that the pause of the check does not end before the commits
		s := mustOpen(t, dir)
		synctest.Wait()
		for round := range 4 {
			if err := s.Commit(t.Context(), records(1+round)); err != nil {
				t.Fatal(err)
			}
		}
		s.background.done.Wait()
		if err := s.Commit(t.Context(), records(5)); err != nil {
			t.Errorf("the check failed: %v", err)
		}
	})
}

// Close ends the check early. That is no damage, so the store gets its mark back: otherwise the
// next Open would check the whole store before it serves.
func TestCheckThatCloseEndedIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var b store.Batch
	for n := range uint32(5000) { // a check pauses after 256 pages, and so looks whether the store was closed
		b.PutSealed(store.Spec, store.AppendSpacePrefix(nil, n), 1, make([]byte, 400))
	}
	if err := errors.Join(s.Commit(t.Context(), &b), s.Close()); err != nil {
		t.Fatal(err)
	}
	if !hasMark(dir) {
		t.Skip("the file system or the machine does not provide what a mark needs")
	}
	synctest.Test(t, func(t *testing.T) { // so that the pause of the check does not end before Close ends the check
		s := mustOpen(t, dir)
		if s.background == nil {
			t.Fatal("the check does not run in the background")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s.background.stored != nil {
			t.Error("Close waited until the check had read the whole store, want it to end the check early")
		}
		if failed := s.failed.Load(); failed != nil || !hasMark(dir) {
			t.Errorf("the store has failed: %v; it has a mark: %v; want nil and true", failed, hasMark(dir))
		}
	})
}

// freeList returns the page with the list of free pages in the file of a store, and how many pages
// it lists; nil and 0 if there is no list.
func freeList(t *testing.T, dir string) (page []byte, n int) {
	t.Helper()
	content := readFile(t, dir)
	m, ok := newestMeta(content)
	if !ok {
		t.Fatal("no meta page")
	}
	if m.free == noFreePage {
		return nil, 0
	}
	page = content[m.free*m.pageSize:][:m.pageSize]
	return page, count(page)
}

// A commit writes the list of free pages, so that the next Open need not read the whole file to
// find them. If the list is long compared with what the commit changes, the commit leaves it out,
// and Close writes it.
func TestFreePagesAreListed(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	commit := func(change func(b *store.Batch)) {
		var b store.Batch
		change(&b)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	one := func(b *store.Batch) { b.Put(store.Task, []byte("k"), []byte("v")) }
	commit(one)
	if page, _ := freeList(t, dir); page == nil {
		t.Error("a commit to a small store did not list its free pages")
	}
	const tasks = 20_000
	key := func(n int) []byte { return store.AppendSpacePrefix(nil, uint32(n)) }
	commit(func(b *store.Batch) {
		for n := range tasks {
			b.Put(store.Spec, key(n), make([]byte, 400))
		}
	})
	commit(func(b *store.Batch) {
		for n := range tasks {
			b.Delete(store.Spec, key(n))
		}
	})
	commit(one)
	if page, n := freeList(t, dir); page != nil {
		t.Errorf("a commit of one change wrote a list of %d free pages, want none", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, n := freeList(t, dir); n < tasks/20 {
		t.Errorf("Close wrote a list of %d free pages, want at least %d", n, tasks/20)
	}
	was := int64(len(readFile(t, dir)))
	s = mustOpen(t, dir)
	if got := s.Stats().FreeBytes; got < was/2 {
		t.Errorf("%d of %d bytes are free after Open, want at least half", got, was)
	}
}

// The check refuses a list of free pages that holds a page in use, because a commit would be
// written over that page; a page outside of the range; or more pages than fit.
func TestCheckFindsFreePageInUse(t *testing.T) {
	dir := filledStore(t)
	content := readFile(t, dir)
	m, _ := newestMeta(content)
	list := content[m.free*m.pageSize:][:m.pageSize]
	if count(list) == 0 {
		t.Fatal("no page is free")
	}
	for _, c := range []struct {
		page uint64
		want string
	}{{m.root, "is in use and in the list"}, {m.pages, "out of order"}, {1, "out of order"}} {
		order.PutUint64(list[headerSize:], c.page)
		order.PutUint16(list[10:], 1)
		if err := checkData(content); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with page %d in the list checkData = %v, want an error with %q", c.page, err, c.want)
		}
	}
	order.PutUint16(list[10:], 0xFFFF)
	order.PutUint64(list[headerSize:], 1<<40)
	if err := checkData(content); err == nil || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("with a list that is too long checkData = %v, want an error with %q", err, "do not fit")
	}
}
