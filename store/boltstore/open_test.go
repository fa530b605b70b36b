package boltstore

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// filledStore returns the directory of a closed store with 400 records.
func filledStore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := mustOpen(t, dir)
	var b store.Batch
	for seq := range uint64(400) {
		b.PutSealed(store.Spec, store.AppendSpacePrefix(nil, uint32(seq)), 1, make([]byte, 100))
	}
	if err := errors.Join(s.Commit(t.Context(), &b), s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustOpen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// While a store is open, another Open fails with an error that names the process that has the
// store. Close removes the owner file.
func TestSecondOpenNamesTheFirstProcess(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir)
	_, err := Open(dir, Options{LockTimeout: time.Millisecond})
	inUse := new(store.InUseError)
	if !errors.As(err, &inUse) {
		t.Fatalf("the second Open = %v, want an InUseError", err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if inUse.PID != os.Getpid() || inUse.Host != host || inUse.Since.IsZero() || inUse.Dir != dir {
		t.Errorf("the error is %+v, want pid %d, host %s, a time and directory %s", inUse, os.Getpid(), host, dir)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if names := fileNames(t, dir); names != filesOfMarkedStore {
		t.Errorf("files after Close: %s, want %s", names, filesOfMarkedStore)
	}
	mustOpen(t, dir)
}

// The lock decides who owns a store. Open replaces an owner file that a crash has left, even one
// that cannot be parsed.
func TestOwnerFileOfACrashIsReplaced(t *testing.T) {
	dir := filledStore(t)
	if err := os.WriteFile(filepath.Join(dir, ownerName), []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
	_, err := Open(dir, Options{LockTimeout: time.Millisecond})
	if inUse := new(store.InUseError); !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("the second Open = %v, want the pid of this process", err)
	}
}

// Open replaces an owner file that it cannot write, such as one of root, whose process was killed.
// Otherwise the user of the store could no longer open it. A directory stands for such a file here,
// because not even root can write to it.
func TestOwnerFileOfAnotherUserIsReplaced(t *testing.T) {
	dir := filledStore(t)
	if err := os.Mkdir(filepath.Join(dir, ownerName), 0o700); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
	_, err := Open(dir, Options{LockTimeout: time.Millisecond})
	if inUse := new(store.InUseError); !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("the second Open = %v, want the pid of this process", err)
	}
}

// If the owner file can be neither written nor replaced, nothing has the store open afterwards.
// Otherwise an InUseError would name a process that is gone.
func TestOwnerFileThatCannotBeReplaced(t *testing.T) {
	dir := filledStore(t)
	if err := os.MkdirAll(filepath.Join(dir, ownerName, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, ownerName)) {
		t.Errorf("Open = %v, %v, want an error that names the owner file", s, err)
	}
	if _, _, err := Compact(dir, Options{}, nil); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, ownerName)) {
		t.Errorf("Compact = %v, want an error that names the owner file", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, ownerName)); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

// If the names of the files beside the store are symbolic links, Open replaces the links and does
// not write to the files that they lead to.
func TestOpenWritesNothingThroughALink(t *testing.T) {
	dir, other := markedStore(t), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{ownerName, markName} {
		name = filepath.Join(dir, name)
		_ = os.Remove(name)
		if err := os.Symlink(other, name); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
		t.Errorf("the file that the links lead to has the content %q (%v), want %q", text, err, "kept")
	}
}

// If the first start of a store is killed, it leaves an incomplete file under a temporary name. The
// next start removes that file and makes a new store. The name of the directory does not matter,
// even if it looks like a pattern.
func TestFirstStartAfterACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store[1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, strings.Replace(tempPattern, "*", "123", 1))
	if err := os.WriteFile(torn, make([]byte, 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir)
	if names, want := fileNames(t, dir), filesOfMarkedStore+" "+ownerName; names != want {
		t.Errorf("files: %s, want %s", names, want)
	}
	var b store.Batch
	b.Put(store.Task, []byte("k"), []byte("v"))
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Error(err)
	}
}

// If several processes open a store that does not exist yet, one of them opens it and the others
// get an InUseError; no process replaces the file of another.
func TestOneOfSeveralFirstStartsOwnsTheStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	var boots sync.WaitGroup
	owners := make(chan *Store, 8)
	for range cap(owners) {
		boots.Go(func() {
			s, err := Open(dir, Options{LockTimeout: time.Millisecond})
			if inUse := new(store.InUseError); err != nil && !errors.As(err, &inUse) {
				t.Error(err)
			}
			if err == nil {
				owners <- s
			}
		})
	}
	boots.Wait()
	if len(owners) != 1 {
		t.Fatalf("%d of %d starts own the store, want 1", len(owners), cap(owners))
	}
	owner := <-owners
	defer owner.Close()
	opened, err := os.Stat(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(opened, openFileInfo(t, owner)) {
		t.Error("the file that the owner has open is not the one in the directory, want the same file")
	}
}

// openFileInfo returns the file info of the open file of a store, whatever name the file has now.
func openFileInfo(t *testing.T, s *Store) fs.FileInfo {
	t.Helper()
	info, err := lockedFile(s).Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// Only the user of the store may read its directory and files, because the store holds the key that
// signs leases.
func TestFileModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	mustOpen(t, dir)
	for name, want := range map[string]fs.FileMode{"": 0o700 | fs.ModeDir, fileName: 0o600, ownerName: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("the mode of %q is %v, want %v", name, info.Mode(), want)
		}
	}
}

// If the data directory cannot be made or written to, the error of Open names the directory.
func TestErrorNamesTheUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), closed} {
		if dir == closed && os.Getuid() == 0 {
			continue // root may write anywhere
		}
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "data directory "+dir) {
			t.Errorf("Open(%s) = %v, want an error that names the directory", dir, err)
		}
	}
}

// Open refuses a file that is not a store as damaged, and does not change it.
func TestFileThatIsNoStoreIsRefused(t *testing.T) {
	whole := readFile(t, filledStore(t))
	files := map[string][]byte{
		"empty":                 {},
		"short":                 []byte("hello"),
		"text":                  bytes.Repeat([]byte("hello "), 10_000),
		"zeros":                 make([]byte, 64<<10),
		"both meta pages wrong": append(make([]byte, 8<<10), whole[8<<10:]...),
	}
	for name, content := range files {
		t.Run(name, func(t *testing.T) { wantDamaged(t, content) })
	}
}

// Open refuses a file that was cut off, unless only space is missing that was never used. Open must
// not read behind the end of the file, which would kill the process.
func TestFileThatWasCutOffIsRefused(t *testing.T) {
	whole := readFile(t, filledStore(t))
	meta, found := newestMeta(whole)
	if !found {
		t.Fatal("no meta page in a good store")
	}
	used := int(meta.pages * meta.pageSize)
	for _, size := range []int{1, 4095, 4096, 4097, 8192, 12288, used / 2, used - 4096, used - 1} {
		wantDamaged(t, whole[:size])
	}
	dir := dirWithFile(t, whole[:used])
	mustOpen(t, dir)
}

// Open of a file with a lost or changed page either succeeds or returns a DamagedError or
// CorruptError. It must not let bbolt panic in one of bbolt's goroutines, which would kill the
// process, and must not keep the lock after an error. Open may not notice a change within a value:
// then the seal of the value fails when the value is read.
func TestDamagedPageDoesNotKillTheProcess(t *testing.T) {
	whole := readFile(t, filledStore(t))
	meta, _ := newestMeta(whole)
	whole = whole[:meta.pages*meta.pageSize]
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	damages := map[string]func(page, next []byte){
		"zero":    func(page, _ []byte) { clear(page) },
		"half":    func(page, _ []byte) { clear(page[len(page)/2:]) },
		"another": func(page, next []byte) { copy(page, next) },
		"byte":    func(page, _ []byte) { page[rnd.IntN(headerSize+8*elementSize)]++ },
		"type":    func(page, _ []byte) { page[8] = 0x10 },
	}
	for name, damage := range damages {
		damaged := 0
		for n := uint64(2); n < meta.pages; n++ {
			content := bytes.Clone(whole)
			at, next := n*meta.pageSize, (n+1)*meta.pageSize
			damage(content[at:next], content[next:])
			damaged += openDamaged(t, content, whole)
		}
		if damaged < int(meta.pages)/4 {
			t.Errorf("damage %q: Open refused %d of %d files, want at least a quarter", name, damaged, meta.pages)
		}
	}
}

// openDamaged opens a file with content. If Open refuses it, openDamaged replaces the content by
// whole and opens the file again, for which the lock must be free. It returns 1 if Open refused
// content, else 0.
func openDamaged(t *testing.T, content, whole []byte) int {
	t.Helper()
	dir := dirWithFile(t, content)
	s, err := Open(dir, Options{LockTimeout: time.Millisecond})
	if err == nil {
		_ = s.Close()
		return 0
	}
	// a CorruptError if the record with the format is lost
	damage, record := new(store.DamagedError), new(store.CorruptError)
	if !errors.As(err, &damage) && !errors.As(err, &record) {
		t.Errorf("Open = %v, want a DamagedError or a CorruptError", err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
	return 1
}

// wantDamaged checks that Open, OpenReadOnly and Compact refuse a file with content as damaged, and
// do not change it.
func wantDamaged(t *testing.T, content []byte) {
	t.Helper()
	dir, opts := dirWithFile(t, content), Options{LockTimeout: time.Millisecond}
	for what, open := range map[string]func() error{
		"Open":         func() error { _, err := Open(dir, opts); return err },
		"OpenReadOnly": func() error { _, err := OpenReadOnly(dir, opts); return err },
		"Compact":      func() error { _, _, err := Compact(dir, opts, noCheck); return err },
	} {
		if err := open(); !errors.As(err, new(*store.DamagedError)) {
			t.Errorf("%s of %d bytes = %v, want a DamagedError", what, len(content), err)
		}
		if names := fileNames(t, dir); names != fileName || !bytes.Equal(readFile(t, dir), content) {
			t.Errorf("%s of %d bytes: files: %s, want %s as it was", what, len(content), names, fileName)
		}
	}
}

// dirWithFile returns a new directory with a store whose file has the content.
func dirWithFile(t *testing.T, content []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readFile returns the content of the store's file.
func readFile(t *testing.T, dir string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// fileNames returns the names of the files in a directory, sorted, with spaces between them.
func fileNames(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

var addOne = store.Migration{Name: "add a record", Apply: func(_ store.Reader, b *store.Batch) error {
	b.PutSealed(store.Meta, []byte("one"), 1, []byte("1"))
	return nil
}}

// A program with more migrations upgrades a store. The older program then refuses the store and
// does not change it.
func TestOpenMigrates(t *testing.T) {
	dir := filledStore(t)
	opts := Options{}.withDefaults()
	newest := store.Current().Format()
	s, err := open(dir, opts, append(store.Current(), addOne))
	if err != nil {
		t.Fatal(err)
	}
	err = s.View(func(r store.Reader) error {
		_, got, err := store.Open(store.Meta, []byte("one"), r.Get(store.Meta, []byte("one")))
		if string(got) != "1" {
			t.Errorf("the record that the migration adds is %q, want %q", got, "1")
		}
		return err
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	before := readFile(t, dir)
	_, err = Open(dir, Options{})
	newer := new(store.NewerFormatError)
	if !errors.As(err, &newer) || newer.Have != newest+1 || newer.Want != newest {
		t.Errorf("Open by the older program = %v, want a NewerFormatError of %d and %d", err, newest+1, newest)
	}
	if !bytes.Equal(before, readFile(t, dir)) {
		t.Error("the older program changed the store")
	}
	if names := fileNames(t, dir); names != filesOfMarkedStore {
		t.Errorf("files after the refusal: %s, want %s", names, filesOfMarkedStore)
	}
}

// Gone is true after an open store was moved or removed, also if another store is at its path
// meanwhile. Stats still returns the size of the open file, and Close does not remove the owner
// file of the other store.
func TestGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	size := first.Stats().FileBytes
	want := func(st *Store, gone bool) {
		t.Helper()
		if got := st.Gone(); got != gone {
			t.Errorf("Gone = %v, want %v", got, gone)
		}
		if got := st.Stats().FileBytes; got != size {
			t.Errorf("FileBytes = %d, want %d", got, size)
		}
	}
	want(first, false)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	want(first, true)
	second, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want(first, true)
	want(second, false)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if names, want := fileNames(t, dir), filesOfMarkedStore+" "+ownerName; names != want {
		t.Errorf("files of the second store after the first was closed: %s, want %s", names, want)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	want(second, true)
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// A parent directory that the file system cannot sync is no error, because only its owner can do
// more. /proc stands for such a file system.
func TestParentThatCannotBeSynced(t *testing.T) {
	if !fileExists("/proc/self") {
		t.Skip("the system has no /proc")
	}
	if err := syncParent("/proc"); err != nil {
		t.Errorf("syncParent = %v, want no error", err)
	}
	if err := syncParent("/proc/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("syncParent of a directory that does not exist = %v, want fs.ErrNotExist", err)
	}
}

// If the file of a store is missing, but not what the store has left beside it, Open makes no empty
// store in its place: the loss would go unnoticed. When those files are removed, it does.
func TestLostStoreIsNotReplaced(t *testing.T) {
	for _, left := range [][]string{{markName}, {reserveName}, {markName, reserveName}} {
		dir := t.TempDir()
		for _, name := range left {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		lost := new(store.LostError)
		if _, err := Open(dir, Options{}); !errors.As(err, &lost) || lost.Dir != dir || lost.File != fileName || !slices.Equal(lost.Left, left) {
			t.Errorf("Open of a directory with %q = %v, want a LostError that names all of them", left, err)
		}
		if names := fileNames(t, dir); names != strings.Join(left, " ") {
			t.Errorf("files after the refusal: %s, want %q", names, left)
		}
		for _, name := range left {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		mustOpen(t, dir)
	}
}

// Two processes may begin with the same directory. The one that has seen no store there does not
// report it lost if the other one has made it meanwhile, and what lies beside it.
func TestStoreThatAnotherProcessMakesIsNotLost(t *testing.T) {
	dir := t.TempDir()
	mustOpen(t, dir)
	if !fileExists(filepath.Join(dir, markName)) {
		t.Fatal("the store has left nothing beside it")
	}
	if err := refuseLost(filepath.Join(dir, fileName)); err != nil {
		t.Error(err)
	}
}

// A commit for which bbolt has to map more of the file waits until a Snapshot ends, and with it all
// reads that begin meanwhile. So there is room for what a store grows by during the longest backup,
// however large it was when it was opened.
func TestRoomToGrowDuringASnapshot(t *testing.T) {
	dir := filledStore(t)
	for _, size := range []int64{0, 100 << 30} { // the larger file has a hole, so it takes no space
		if size > 0 {
			if err := os.Truncate(filepath.Join(dir, fileName), size); err != nil {
				t.Fatal(err)
			}
		}
		s := mustOpen(t, dir)
		const hour = 3600
		if room := mappedBytes(s) - s.Stats().FileBytes; room < 4<<20*hour {
			t.Errorf("with a file of %d bytes there is room for %d more, want 4 MiB for each second of an hour",
				s.Stats().FileBytes, room)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
