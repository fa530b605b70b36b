package boltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// mostlyFreeStore returns the directory of a closed store. Most of its file is free.
func mostlyFreeStore(t *testing.T) (dir string) {
	t.Helper()
	dir = filledStore(t)
	s := mustOpen(t, dir)
	for _, fill := range []func(*store.Batch){
		func(b *store.Batch) { b.Put(store.Output, []byte("k"), make([]byte, 1<<20)) },
		func(b *store.Batch) { b.Delete(store.Output, []byte("k")) },
	} {
		var b store.Batch
		fill(&b)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Compact replaces the file by a smaller one with the same records, which can be opened and
// committed to.
func TestCompact(t *testing.T) {
	dir := mostlyFreeStore(t)
	old := mustOpen(t, dir)
	want := storetest.Listing(t, old)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	before, after, err := Compact(dir, Options{}, func(s *Store) error {
		if got := storetest.Listing(t, s); got != want {
			t.Error("the store that Compact passes to check does not have the same records")
		}
		return nil
	})
	if err != nil || before < 1<<20 || after > before/2 || after != int64(len(readFile(t, dir))) {
		t.Errorf("Compact = %d, %d, %v; want more than 1 MiB, at most half of that and equal to the size of the file, %d, and no error",
			before, after, err, len(readFile(t, dir)))
	}
	if names := fileNames(t, dir); names != fileName {
		t.Errorf("files: %s, want %s", names, fileName)
	}
	s := mustOpen(t, dir)
	if got := storetest.Listing(t, s); got != want {
		t.Error("the compacted store does not have the same records")
	}
	var b store.Batch
	b.Put(store.Task, []byte("k"), []byte("v"))
	if err := errors.Join(s.Commit(t.Context(), &b), s.Close()); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

// A compaction that fails does not change the store and leaves no copy. If a compaction is killed
// and its copy stays, the next Open removes the copy.
func TestFailedCompactChangesNothing(t *testing.T) {
	no := errors.New("no")
	dir := mostlyFreeStore(t)
	was := readFile(t, dir)
	if _, _, err := Compact(dir, Options{}, func(*Store) error { return no }); !errors.Is(err, no) {
		t.Errorf("Compact = %v, want the error of check", err)
	}
	if names := fileNames(t, dir); names != filesOfMarkedStore || !bytes.Equal(was, readFile(t, dir)) {
		t.Errorf("files: %s, want %s as it was", names, filesOfMarkedStore)
	}
	left := filepath.Join(dir, strings.Replace(compactPattern, "*", "123", 1))
	if err := os.WriteFile(left, was[:9000], 0o600); err != nil {
		t.Fatal(err)
	}
	if s := mustOpen(t, dir); s.background != nil {
		s.background.done.Wait()
	}
	if names, want := fileNames(t, dir), filesOfMarkedStore+" "+ownerName; names != want {
		t.Errorf("files: %s, want %s", names, want)
	}
}

// CompactTo makes a smaller file with the same records in another directory, which can be opened
// and committed to. It makes that directory, and takes one in which an earlier CompactTo was
// killed. The store stays as it is, and nobody else can open it meanwhile.
func TestCompactTo(t *testing.T) {
	dir := mostlyFreeStore(t)
	old := mustOpen(t, dir)
	want := storetest.Listing(t, old)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	was, names := readFile(t, dir), fileNames(t, dir)
	for _, left := range []string{"nothing", "part of a copy", "a symbolic link"} {
		target := filepath.Join(t.TempDir(), "missing", "too")
		unfinished := filepath.Join(target, restoringName)
		switch left {
		case "part of a copy":
			if err := errors.Join(os.MkdirAll(target, 0o700), os.WriteFile(unfinished, was[:9000], 0o600)); err != nil {
				t.Fatal(err)
			}
		case "a symbolic link":
			if err := errors.Join(os.MkdirAll(target, 0o700), os.Symlink(filepath.Join(dir, fileName), unfinished)); err != nil {
				t.Fatal(err)
			}
		}
		before, after, err := CompactTo(dir, target, Options{}, func(s *Store) error {
			if got := storetest.Listing(t, s); got != want {
				t.Error("the store that CompactTo passes to check does not have the same records")
			}
			if _, err := Open(dir, Options{LockTimeout: time.Millisecond}); !errors.As(err, new(*store.InUseError)) {
				t.Errorf("Open of the store = %v, want an InUseError", err)
			}
			if _, err := Open(target, Options{}); !errors.As(err, new(*store.UnfinishedError)) {
				t.Errorf("Open of the copy = %v, want an UnfinishedError", err)
			}
			return nil
		})
		switch {
		case left == "a symbolic link": // the copy would overwrite the store
			if !errors.As(err, new(*store.NotEmptyError)) {
				t.Errorf("%s is there: CompactTo = %v, want a NotEmptyError", left, err)
			}
		case err != nil || before != int64(len(was)) || after > before/2 || after != int64(len(readFile(t, target))) || fileNames(t, target) != fileName:
			t.Errorf("%s is there: CompactTo = %d, %d, %v; want %d, at most half of that and the size of the only file, and no error", left, before, after, err, len(was))
		default:
			s := mustOpen(t, target)
			if got := storetest.Listing(t, s); got != want {
				t.Error("the copy does not have the same records")
			}
			commitSome(t, s, 1, 1)
		}
		if !bytes.Equal(was, readFile(t, dir)) || fileNames(t, dir) != names {
			t.Errorf("the store has changed; files: %s, want %s", fileNames(t, dir), names)
		}
	}
}

// CompactTo refuses a directory in which there is something, the directory of the store among them.
// If it fails, it leaves nothing, and the store does not change.
func TestCompactToLeavesNothing(t *testing.T) {
	dir, other := mostlyFreeStore(t), t.TempDir()
	was := readFile(t, dir)
	if err := os.WriteFile(filepath.Join(other, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{dir, other} {
		_, _, err := CompactTo(dir, target, Options{}, noCheck)
		if !errors.As(err, new(*store.NotEmptyError)) || !errors.As(err, new(*TargetError)) {
			t.Errorf("CompactTo into %s = %v, want a NotEmptyError about the target", target, err)
		}
	}
	no := errors.New("no")
	parent := t.TempDir()
	_, _, err := CompactTo(dir, filepath.Join(parent, "a", "b"), Options{}, func(*Store) error { return no })
	if !errors.Is(err, no) || errors.As(err, new(*TargetError)) {
		t.Errorf("CompactTo = %v, want the error of check", err)
	}
	if _, _, err := CompactTo(t.TempDir(), filepath.Join(parent, "a", "b"), Options{}, noCheck); !errors.Is(err, os.ErrNotExist) || errors.As(err, new(*TargetError)) {
		t.Errorf("CompactTo without a store = %v, want that there is none", err)
	}
	if names := fileNames(t, parent); names != "" {
		t.Errorf("it has left %s", names)
	}
	if !bytes.Equal(was, readFile(t, dir)) {
		t.Error("the store has changed")
	}
}

// The copy belongs to the owner of the store, and so do the directories that CompactTo has made:
// otherwise the user who serves it could not open it, if root has made it. Only the owner may use
// the directories.
func TestCompactToKeepsTheOwner(t *testing.T) {
	dir := mostlyFreeStore(t)
	owner := os.Geteuid()
	if owner == 0 {
		owner = 65534
	}
	if err := errors.Join(os.Chown(filepath.Join(dir, fileName), owner, -1), os.Chmod(filepath.Join(dir, fileName), 0o640)); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "a", "b")
	if _, _, err := CompactTo(dir, target, Options{}, noCheck); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{filepath.Dir(target): 0o700, target: 0o700, filepath.Join(target, fileName): 0o640} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if of := info.Sys().(*syscall.Stat_t); int(of.Uid) != owner || info.Mode().Perm() != mode {
			t.Errorf("%s: owner %d, mode %v; want %d and %v", name, of.Uid, info.Mode(), owner, mode)
		}
	}
}

// Compact does not replace the store with a copy that has other records, whatever the reason.
func TestCopyWithOtherRecordsIsRefused(t *testing.T) {
	dir := filledStore(t)
	other := mustOpen(t, dir)
	commitSome(t, other, 1, 1)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, filledStore(t))
	if _, err := s.checkCopy(filepath.Join(dir, fileName), noCheck); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Errorf("checkCopy = %v, want an error that says that the copy differs", err)
	}
}

// The store keeps its owner and its mode, also if root compacts it. Otherwise the user who serves
// it could not open the file.
func TestCompactKeepsTheOwner(t *testing.T) {
	dir := mostlyFreeStore(t)
	path, owner := filepath.Join(dir, fileName), os.Geteuid()
	if owner == 0 {
		owner = 65534
	}
	if err := errors.Join(os.Chown(path, owner, -1), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Compact(dir, Options{}, noCheck); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if of := info.Sys().(*syscall.Stat_t); int(of.Uid) != owner || info.Mode().Perm() != 0o640 {
		t.Errorf("owner %d, mode %v; want %d and -rw-r-----", of.Uid, info.Mode(), owner)
	}
}

// If the name of the store is a symbolic link, Compact replaces the file that it leads to.
func TestCompactReplacesTheFileBehindALink(t *testing.T) {
	dir, link := mostlyFreeStore(t), t.TempDir()
	if err := os.Symlink(filepath.Join(dir, fileName), filepath.Join(link, fileName)); err != nil {
		t.Fatal(err)
	}
	_, after, err := Compact(link, Options{}, noCheck)
	if err != nil || after != int64(len(readFile(t, dir))) {
		t.Errorf("Compact = %d bytes, %v; want the size of the file that the link leads to, %d, and no error",
			after, err, len(readFile(t, dir)))
	}
	if info, err := os.Lstat(filepath.Join(link, fileName)); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the mode of the link is %v (%v), want a symbolic link", info.Mode(), err)
	}
	if names := fileNames(t, dir); names != fileName {
		t.Errorf("files: %s, want %s", names, fileName)
	}
}

// An Open that waits for the lock of the file while Compact replaces the file must open the new
// file. Its commits to the old file would be lost.
func TestOpenDuringCompact(t *testing.T) {
	dir := mostlyFreeStore(t)
	opened := make(chan *Store, 1)
	_, _, err := Compact(dir, Options{}, func(*Store) error {
		if _, err := Open(dir, Options{LockTimeout: time.Millisecond}); !errors.As(err, new(*store.InUseError)) {
			t.Errorf("Open = %v, want an InUseError", err)
		}
		go func() {
			s, err := Open(dir, Options{LockTimeout: time.Minute})
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
		if !blocks("boltstore.lock(", opened) {
			t.Error("Open returned while Compact has the lock of the file")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s := <-opened
	if s == nil {
		return
	}
	defer func() { _ = s.Close() }()
	named, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(named, openFileInfo(t, s)) {
		t.Error("Open opened the old file, want the one that has replaced it")
	}
}

// After the copy has replaced the store, another process can open it while Compact still has the
// old file open. Compact leaves the owner file of that process alone.
func TestCompactLeavesTheNextOwnerAlone(t *testing.T) {
	dir := mostlyFreeStore(t)
	s, err := openToCompact(dir, Options{}.withDefaults(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeOwner(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.replaceWithCopy(noCheck); err != nil {
		t.Fatal(err)
	}
	if names := fileNames(t, dir); names != fileName {
		t.Errorf("files after the rename: %s, want %s", names, fileName)
	}
	next := mustOpen(t, dir)
	if next.background != nil {
		next.background.done.Wait()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if names, want := fileNames(t, dir), filesOfMarkedStore+" "+ownerName; names != want {
		t.Errorf("files after the next owner has opened the store: %s, want %s", names, want)
	}
}

// isNamed is false for a file that another file has replaced under its name: the lock on such a
// file is no lock on the store.
func TestIsNamedIsFalseForAReplacedFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	write := func(content string) {
		if err := os.WriteFile(name+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	old, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	if !isNamed(old, name) {
		t.Error("isNamed is false for a file that has its name")
	}
	write("new")
	if isNamed(old, name) {
		t.Error("isNamed is true for a file that was replaced")
	}
}

// A file that cannot be locked is an error: no process may write to a store without its lock.
func TestFailedLockIsAnError(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lock(file, syscall.LOCK_EX, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("lock of a closed file = %v, want EBADF", err)
	}
}
