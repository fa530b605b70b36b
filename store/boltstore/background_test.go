package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// marking returns the directory of a closed store with a valid mark. It skips the test where the system does not tell what a mark needs.
func marking(t *testing.T) (dir string) {
	t.Helper()
	dir = filled(t)
	if !fileExists(filepath.Join(dir, markName)) {
		t.Skip("the file system, or the machine, does not tell enough for marks")
	}
	return dir
}

// overwrite writes content into the file of a store, which stays the same file, so that its mark stays valid.
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

// Open checks a store before it returns, unless a mark says that this very file was found sound since the machine was started. Then the check runs
// in the background. In all cases of the table the file is sound: a copy of it can be opened.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		later  bool
	}{
		{"nothing has changed", func(*testing.T, string) {}, true},
		{"it is another start of the machine", func(t *testing.T, dir string) {
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
		{"there is none", func(_ *testing.T, dir string) { unmark(filepath.Join(dir, fileName)) }, false},
		{"another file has the name", func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, fileName)
			content := read(t, dir)
			if err := errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := marking(t)
			c.change(t, dir)
			if s := mustOpen(t, dir); (s.background != nil) != c.later {
				t.Errorf("the check runs in the background: %v, want %v", s.background != nil, c.later)
			}
			if s, err := OpenReadOnly(dirWith(t, read(t, dir)), Options{}); err != nil {
				t.Error(err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A mark that cannot be written to, such as one of root, is replaced. Otherwise each start would check first from then on. A directory stands for it, which
// root cannot write to either.
func TestMarkOfAnotherUser(t *testing.T) {
	dir := marking(t)
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

// If the check in the background finds damage, all further calls fail with it, and the next Open refuses the store.
func TestDamageThatIsFoundLater(t *testing.T) {
	dir := marking(t)
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

// After a failed commit the store has no mark, so that the next Open checks first: the disk may have lost earlier writes, too.
func TestFailedCommitTakesTheMark(t *testing.T) {
	dir := marking(t)
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

// The check in the background reads the store as it was when it was opened, whatever is committed meanwhile, and finds it sound. Close ends the
// check.
func TestRecheckBesideCommits(t *testing.T) {
	dir := marking(t)
	for round := range 6 {
		s := mustOpen(t, dir)
		if s.background == nil {
			t.Fatal("the store was checked before Open returned: an earlier round left no mark")
		}
		for n := range 20 {
			var b store.Batch
			for key := range 20 {
				b.PutSealed(store.Spec, store.AppendSpacePrefix(nil, uint32(key*n)), 1, fmt.Appendf(nil, "%d of round %d", n, round))
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
	if err := checkData(read(t, dir)); err != nil {
		t.Error(err)
	}
}

// free returns the page with the list of free pages in the file of a store, and how many pages it lists; nil and 0 if there is no list.
func free(t *testing.T, dir string) (page []byte, n int) {
	t.Helper()
	content := read(t, dir)
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

// A commit writes the list of free pages, so that the next Open need not read the whole file to find them. If the list is long compared with what the
// commit changes, the commit leaves it out, and Close writes it.
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
	if page, _ := free(t, dir); page == nil {
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
	if page, n := free(t, dir); page != nil {
		t.Errorf("a commit of one change wrote a list of %d free pages, want none", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, n := free(t, dir); n < tasks/20 {
		t.Errorf("Close wrote a list of %d free pages, want at least %d", n, tasks/20)
	}
	was := int64(len(read(t, dir)))
	s = mustOpen(t, dir)
	if got := s.Stats().FreeBytes; got < was/2 {
		t.Errorf("%d of %d bytes are free after Open, want at least half", got, was)
	}
}

// The check refuses a list of free pages that holds a page in use, because a commit would be written over that page; a page outside of the range; or
// more pages than fit.
func TestCheckFindsFreePageInUse(t *testing.T) {
	dir := filled(t)
	content := read(t, dir)
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
