package boltstore

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// lastCommit is a file after a commit, without the note that the commit is durable, and the writes
// of that commit.
type lastCommit struct {
	*disk
	pageSize uint64
	number   uint64 // of the commit
	before   string // the listing of the store before the commit
	after    string // the listing of the store after the commit
}

func makeLastCommit(t *testing.T) *lastCommit {
	t.Helper()
	return makeLastCommitIn(t, filledStore(t), store.Current())
}

// makeLastCommitIn does what makeLastCommit does in the store in dir, as a program with these
// migrations.
func makeLastCommitIn(t *testing.T, dir string, version store.Migrations) *lastCommit {
	t.Helper()
	s, err := open(dir, Options{}.withDefaults(), version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	commitSome(t, s, 1, 3)
	return watchCommit(t, s, dir)
}

// watchCommit makes a commit to an open store.
func watchCommit(t *testing.T, s *Store, dir string) *lastCommit {
	t.Helper()
	c := &lastCommit{disk: watchDisk(t, s, dir), before: storetest.Listing(t, s)}
	commitSome(t, s, 4, 1)
	m, _ := newestMeta(c.content)
	c.content = c.content[:m.pages*m.pageSize]
	c.pageSize, c.number, c.after = m.pageSize, m.tx, storetest.Listing(t, s)
	return c
}

// commitSome makes n commits, each with a small value and one of several pages, under keys that
// begin with from, from + 1 ...
func commitSome(t *testing.T, s *Store, from byte, n int) {
	t.Helper()
	for i := range n {
		var b store.Batch
		key := []byte{from + byte(i)}
		b.PutSealed(store.Output, key, 1, bytes.Repeat(key, 6_000))
		b.PutSealed(store.Spec, append(key, "more"...), 1, key)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
}

// isComplete reports whether a file holds all records of the commit. This is possible although a
// page is missing: an older list of free pages may still be right.
func (c *lastCommit) isComplete(t *testing.T, content []byte) bool {
	t.Helper()
	if checkData(content) != nil {
		return false
	}
	s, err := OpenReadOnly(dirWithFile(t, content), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	return storetest.Listing(t, s) == c.after
}

// pages returns the pages that the commit changed, one by one, without the meta pages.
func (c *lastCommit) pages() (all []write) {
	for _, w := range c.writes {
		for at := uint64(0); at < uint64(len(w.data)); at += c.pageSize {
			page := write{w.at + int64(at), w.data[at:][:c.pageSize], w.old[at:][:c.pageSize]}
			if page.at >= 2*int64(c.pageSize) && !bytes.Equal(page.data, page.old) {
				all = append(all, page)
			}
		}
	}
	return all
}

// withoutPage returns the file after a loss of power that lost one page of the commit and kept its
// other writes. The file has no note of the commit; the caller may add it.
func (c *lastCommit) withoutPage(page write) []byte {
	content := bytes.Clone(c.content)
	copy(content[page.at:], page.old)
	return content
}

// torn returns the files that withoutPage makes of all pages without which the commit is not
// complete.
func (c *lastCommit) torn(t *testing.T) (files [][]byte) {
	t.Helper()
	for _, w := range c.pages() {
		if content := c.withoutPage(w); !c.isComplete(t, content) {
			files = append(files, content)
		}
	}
	if len(files) == 0 {
		t.Error("the commit is complete without any of its pages, so the test shows nothing")
	}
	return files
}

// A6: if a loss of power has left only a part of the newest commit, nobody was told of that commit,
// and Open takes it back. OpenReadOnly, which changes nothing, returns a TornError.
func TestTornCommitIsTakenBack(t *testing.T) {
	c := makeLastCommit(t)
	pages := c.pages()
	for _, w := range pages {
		if c.isComplete(t, c.withoutPage(w)) {
			continue
		}
		dir := dirWithFile(t, c.withoutPage(w))
		if _, err := OpenReadOnly(dir, Options{}); !errors.As(err, new(*store.TornError)) {
			t.Errorf("page %d is missing: OpenReadOnly = %v, want a TornError", w.at/int64(c.pageSize), err)
		}
		for _, logged := range []string{"taken back", ""} { // only the first start takes it back, and logs that
			var log strings.Builder
			s, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatalf("page %d is missing: Open = %v, want no error", w.at/int64(c.pageSize), err)
			}
			if storetest.Listing(t, s) != c.before {
				t.Errorf("page %d is missing: the records are not those of the commit before", w.at/int64(c.pageSize))
			}
			if (logged == "") != (log.String() == "") || !strings.Contains(log.String(), logged) {
				t.Errorf("the log of the start is %q, want it to contain %q, or to be empty if that is empty",
					log.String(), logged)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			unmark(s.path) // so that the next start checks first
		}
		commitAfterTakeBack(t, dir)
	}
	if len(pages) < 5 {
		t.Errorf("the commit changed %d pages, want at least 5: otherwise the test shows little", len(pages))
	}
}

// Compact of a store whose newest commit is incomplete, and Restore of such a file, take the commit
// back as Open does, and log that.
func TestTornCommitIsTakenBackByCompactAndRestore(t *testing.T) {
	c := makeLastCommit(t)
	torn := c.torn(t)[0]
	for what, take := range map[string]func(dir string, opts Options) error{
		"Compact": func(dir string, opts Options) error {
			if err := os.WriteFile(filepath.Join(dir, fileName), torn, 0o600); err != nil {
				return err
			}
			_, _, err := Compact(dir, opts, noCheck)
			return err
		},
		"Restore": func(dir string, opts Options) error {
			return Restore(filepath.Join(dirWithFile(t, torn), fileName), dir, opts, noCheck)
		},
	} {
		var log strings.Builder
		dir := t.TempDir()
		if err := take(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
			t.Fatalf("%s = %v, want no error", what, err)
		}
		if !strings.Contains(log.String(), "taken back") {
			t.Errorf("%s logs %q, want it to contain %q", what, log.String(), "taken back")
		}
		if storetest.Listing(t, mustOpen(t, dir)) != c.before {
			t.Errorf("%s: the records are not those of the commit before", what)
		}
	}
}

// If the newest commit of a store of a newer format is incomplete, this program refuses the store
// because of its format, does not call it damaged, and changes nothing.
func TestTornCommitOfNewerStoreIsRefusedForItsFormat(t *testing.T) {
	c := makeLastCommitIn(t, filledStore(t), nextMigrations)
	for _, w := range c.pages() {
		content := c.withoutPage(w)
		refusedAsNewer(t, content)
		clear(content[w.at:][:c.pageSize]) // as where the file has just grown
		refusedAsNewer(t, content)
	}
}

// In a store of a format before 5, a commit flushed its pages before its meta page. So if a page is
// missing, the disk has lost it, perhaps after the commit was acknowledged, and the commit is not
// taken back.
func TestTornCommitOfAnOlderFormatIsRefused(t *testing.T) {
	for _, format := range []int{4, 5} {
		c := makeLastCommitIn(t, dirWithFile(t, goldenStore(t, format)), store.Current()[:format-1])
		for _, content := range c.torn(t) {
			if torn, err := openTorn(t, content); torn != (format == 5) {
				t.Errorf("format %d: OpenReadOnly = %v, want a TornError only for format 5", format, err)
			}
		}
	}
}

// openTorn opens a file for reading, and reports whether the error is a TornError. There may be no
// error if only a value is broken: then reading it fails.
func openTorn(t *testing.T, content []byte) (torn bool, err error) {
	t.Helper()
	s, err := OpenReadOnly(dirWithFile(t, content), Options{})
	if err == nil {
		_ = s.Close()
	}
	return errors.As(err, new(*store.TornError)), err
}

// The first commit to a copy that Snapshot wrote flushes its pages before its meta page, because it
// may overwrite the newer meta page of the copy. Then the other meta page is not that of the commit
// before, and the commit is not taken back.
func TestTornFirstCommitToACopy(t *testing.T) {
	for extra := range 2 {
		s := mustOpen(t, filledStore(t))
		commitSome(t, s, 1, extra)
		var copied bytes.Buffer
		if _, err := s.Snapshot(&copied); err != nil {
			t.Fatal(err)
		}
		newest, _ := newestMeta(copied.Bytes())
		overwrites := newest.tx%2 == 1 // commits with even numbers write page 0, which in a copy is the newer one
		dir := dirWithFile(t, copied.Bytes())
		for _, content := range watchCommit(t, mustOpen(t, dir), dir).torn(t) {
			if torn, err := openTorn(t, content); torn == overwrites {
				t.Errorf("the commit overwrites the newer meta page: %v; OpenReadOnly = %v, want a TornError only if not", overwrites, err)
			}
		}
	}
}

// breakRecord changes a byte of a record of filledStore, which is at that place in its value,
// everywhere in a file.
func breakRecord(t *testing.T, content []byte, place int) {
	t.Helper()
	var b store.Batch
	key := store.AppendSpacePrefix(nil, 7)
	b.PutSealed(store.Spec, key, 1, make([]byte, 100))
	record := slices.Concat(key, b.At(0).Value) // as bbolt writes it
	found := 0
	for at := bytes.Index(content, record); at >= 0; at = bytes.Index(content, record) {
		content[at+len(key)+place]++
		found++
	}
	if found == 0 {
		t.Fatal("the file does not have the record")
	}
}

// If not even the commit before is whole, the disk has lost more than the commit that was under
// way. Open takes nothing back, and changes nothing.
func TestCommitIsNotTakenBackToABrokenOne(t *testing.T) {
	for _, content := range makeLastCommit(t).torn(t) {
		breakRecord(t, content, 1) // in the seal, which is in the sums
		wantDamaged(t, content)
	}
}

// The page of the root may have held the empty root of a new file, before the store's first commit.
// If the disk has lost that page alone, its tree is sound, and there are no sums with which it
// disagrees.
func TestEmptyRootIsDamage(t *testing.T) {
	c := makeLastCommit(t)
	m, _ := newestMeta(c.content)
	root := c.content[m.root*m.pageSize:][:m.pageSize]
	order.PutUint64(root, m.root)
	order.PutUint16(root[8:], leafPage)
	clear(root[10:])
	breakRecord(t, c.content, 1) // so that the newest commit is not taken back
	wantDamaged(t, c.content)
}

// A value that was broken already before the newest commit is no reason to take that commit back.
func TestCommitIsNotTakenBackForAnOldBrokenValue(t *testing.T) {
	c := makeLastCommit(t)
	breakRecord(t, c.content, store.SealSize)
	s := mustOpen(t, dirWithFile(t, c.content))
	err := s.View(func(r store.Reader) error {
		if r.Get(store.Output, []byte{4}) == nil {
			t.Error("the newest commit was taken back")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A file in which a commit was taken back is like a copy that Snapshot wrote: both meta pages are
// valid and have the records of the commit before, which has a note that it is durable. The next
// commit overwrites the older one.
func TestTakeBackLeavesTwoMetaPages(t *testing.T) {
	c := makeLastCommit(t)
	dir := dirWithFile(t, c.torn(t)[0])
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(takeBack(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	content := readFile(t, dir)
	newest, err := newChecker(content)
	if err != nil {
		t.Fatal(err)
	}
	older, ok := parseMeta(content[newest.otherPage(content)*c.pageSize:])
	if newest.tx != c.number-1 || !newest.hasNote() || !ok || older.tx != c.number-2 || older.root != newest.root {
		t.Errorf("the newest commit is %d and has a note: %v; the other meta page is valid: %v, of commit %d with root %d; want %d, true, true, %d and root %d",
			newest.tx, newest.hasNote(), ok, older.tx, older.root, c.number-1, c.number-2, newest.root)
	}
}

// If a newer format has other sums, for example for one keyspace more, this program refuses the
// store because of its format, and does not call it damaged.
func TestNewerStoreWithOtherSumsIsRefusedForItsFormat(t *testing.T) {
	dir := filledStore(t)
	s, err := open(dir, Options{}.withDefaults(), nextMigrations)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { // as with one keyspace more
		bucket := tx.Bucket([]byte(sumsBucket))
		more := append(bytes.Clone(bucket.Get([]byte(sumsKey))), make([]byte, 8)...)
		sealSums(more)
		return bucket.Put([]byte(sumsKey), more)
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	refusedAsNewer(t, readFile(t, dir))
}

// No commit can update sums that cannot be read. So a store with such sums is refused when it is
// opened, also if nothing else is checked first.
func TestStoreWithUnreadableSumsIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(header, key []byte){
		"their key has a flipped bit":        func(_, key []byte) { key[0] ^= 1 },
		"the length of the value is smaller": func(header, _ []byte) { header[len(header)-4]-- },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filledStore(t)
			s := mustOpen(t, dir)
			commitSome(t, s, 10, 5)
			var stored []byte // bbolt writes the key and the value of an element beside each other
			err := s.db.View(func(tx *bbolt.Tx) error {
				stored = append([]byte(sumsKey), tx.Bucket([]byte(sumsBucket)).Get([]byte(sumsKey))...)
				return nil
			})
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			content := readFile(t, dir)
			at := bytes.Index(content, stored)
			spoil(content[:at], content[at:])
			// the same file, so it is still marked as checked
			if err := os.WriteFile(filepath.Join(dir, fileName), content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(dir, Options{})
			_, readOnly := OpenReadOnly(dir, Options{})
			for _, err := range []error{err, readOnly} {
				damaged := new(store.DamagedError)
				if !errors.As(err, &damaged) || damaged.Problem != errSums.Error() {
					t.Errorf("the error is %v, want a DamagedError with %q", err, errSums)
				}
			}
		})
	}
}

// refusedAsNewer checks that Open and OpenReadOnly refuse a file because of its newer format, and
// do not change it.
func refusedAsNewer(t *testing.T, content []byte) {
	t.Helper()
	dir := dirWithFile(t, content)
	_, err := Open(dir, Options{})
	_, readOnly := OpenReadOnly(dir, Options{})
	for _, err := range []error{err, readOnly} {
		newer := new(store.NewerFormatError)
		if !errors.As(err, &newer) || newer.Have != nextMigrations.Format() || newer.Want != store.Current().Format() {
			t.Errorf("the error is %v, want a NewerFormatError of %d and %d",
				err, nextMigrations.Format(), store.Current().Format())
		}
	}
	if !bytes.Equal(readFile(t, dir), content) {
		t.Error("Open changed a store that it refused")
	}
}

// commitAfterTakeBack commits to a store in which a commit was taken back, and checks that the next
// start finds the new commits.
func commitAfterTakeBack(t *testing.T, dir string) {
	t.Helper()
	s := mustOpen(t, dir)
	commitSome(t, s, 10, 5)
	want := storetest.Listing(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	unmark(s.path)
	s = mustOpen(t, dir)
	if storetest.Listing(t, s) != want {
		t.Error("after the next start the records are not those that were committed after a commit had been taken back")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A6: a commit with a note that it is durable was acknowledged, so it must not be taken back. If
// one of its pages is missing, Open refuses the store or, if the page is part of a value, reading
// the value fails its seal.
func TestDurableCommitIsNotTakenBack(t *testing.T) {
	c := makeLastCommit(t)
	refused := 0
	for _, w := range c.pages() {
		content := c.withoutPage(w)
		if c.isComplete(t, content) {
			continue
		}
		copy(content[noteAt(c.number, int(c.pageSize)):], encodeNote(c.number))
		s, err := Open(dirWithFile(t, content), Options{})
		// a CorruptError if the page with the format is missing
		if errors.As(err, new(*store.DamagedError)) || errors.As(err, new(*store.CorruptError)) {
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		err = s.View(func(r store.Reader) error {
			for key := range byte(5) { // the value of the commit, and those in the same leaf
				if value := r.Get(store.Output, []byte{key}); value != nil && !store.Sealed(store.Output, []byte{key}, value) {
					return errIncomplete
				}
			}
			return nil
		})
		if !errors.Is(err, errIncomplete) {
			t.Errorf("page %d is missing: neither Open nor the seal of a value returns an error", w.at/int64(c.pageSize))
		}
		_ = s.Close()
	}
	if refused == 0 {
		t.Error("Open refused none of the files, want some")
	}
}

// After each commit, the file is sound, and has the note that this commit is durable in the place
// where the check looks for it.
func TestEachCommitHasANote(t *testing.T) {
	dir := filledStore(t)
	s := mustOpen(t, dir)
	for i := range byte(4) {
		commitSome(t, s, i, 1)
		content := readFile(t, dir)
		m, _ := newestMeta(content)
		if !bytes.HasPrefix(content[noteAt(m.tx, s.pageSize):], encodeNote(m.tx)) {
			t.Errorf("commit %d has no note that it is durable", m.tx)
		}
		if err := checkData(content); err != nil {
			t.Error(err)
		}
	}
}

// A6: a View that has seen a commit returns only when that commit is durable, because its caller
// may then tell what it has read.
func TestViewWaitsUntilDurable(t *testing.T) {
	s := mustOpen(t, filledStore(t))
	commitSome(t, s, 1, 1)
	newest := s.durable.Load()
	s.durable.Store(newest - 1) // as between Write and Sync of the newest commit
	done := make(chan error, 1)
	go func() { done <- s.View(func(store.Reader) error { return nil }) }()
	if !blocks("(*Store).View", done) {
		t.Error("View returned before the commit that it has seen was durable")
	}
	s.setOutcome(func() { s.durable.Store(newest) })
	if err := <-done; err != nil {
		t.Error(err)
	}
	commitSome(t, s, 2, 1) // the View that has waited keeps no commit waiting
}

// A6: if the flush of a commit fails, a View that has seen the commit returns that error, because
// the records that it has read may be lost.
func TestViewOfAFailedCommitFails(t *testing.T) {
	s := mustOpen(t, filledStore(t))
	commitSome(t, s, 1, 1)
	s.durable.Store(s.durable.Load() - 1)
	err := s.View(func(store.Reader) error { return s.fail(errIncomplete) })
	if commit := new(store.CommitError); !errors.As(err, &commit) {
		t.Errorf("View = %v, want a CommitError", err)
	}
}

// A sector that was being written when the power failed may be unreadable. Then the commit is taken
// back, too. In this test, reading the page causes a memory fault, as with a mapped file on such a
// disk.
func TestCommitWithAnUnreadablePageIsTakenBack(t *testing.T) {
	c := makeLastCommit(t)
	for _, w := range c.pages() {
		data, err := syscall.Mmap(-1, 0, len(c.content), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		copy(data, c.content)
		if err := unix.Mprotect(data[w.at:][:c.pageSize], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if err := checkData(data); !errors.As(err, new(tornError)) {
			t.Errorf("page %d cannot be read: checkData = %v, want a tornError", w.at/int64(c.pageSize), err)
		}
		if err := syscall.Munmap(data); err != nil {
			t.Fatal(err)
		}
	}
}

// A6: after each of many crashes, the store has the records from before or from after the commit
// that was under way. Between the crashes, starts take commits back, and some crashes happen while
// a start does so. A commit after one that was taken back has the same number, so the file may have
// old pages with that number.
func TestCrashesInARow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for range 4 {
		dir := t.TempDir()
		s := mustOpen(t, dir)
		states := []string{storetest.Listing(t, s)}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		content := readFile(t, dir)
		m, _ := newestMeta(content)
		content = content[:m.pages*m.pageSize]
		for range 12 {
			if half := tornTakeBack(t, content, rnd); half != nil {
				content = half
				counts["crash while a commit was taken back"]++
			}
			dir := dirWithFile(t, content)
			s, err := Open(dir, Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			at := slices.Index(states, storetest.Listing(t, s))
			if at < 0 {
				t.Fatalf("after a crash the records are neither those before the commit nor those after it; so far: %v", counts)
			}
			counts[[]string{"as before", "as after"}[at]]++
			content, states = crashAfter(t, s, dir, 2+rnd.IntN(4), rnd)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Log(counts)
	if counts["as after"] == 0 || counts["crash while a commit was taken back"] == 0 {
		t.Errorf("some kinds of crashes did not happen: %v", counts)
	}
}

// crashAfter makes n commits. It returns what a crash during the last one may leave of the file,
// and the two listings that the store may then have: before that commit and after it.
func crashAfter(t *testing.T, s *Store, dir string, n int, rnd *rand.Rand) (content []byte, states []string) {
	t.Helper()
	d := watchDisk(t, s, dir)
	m, _ := newestMeta(d.content)
	d.content = d.content[:m.pages*m.pageSize]
	for range n {
		d.writes = nil
		readNotes(t, d, dir)
		content, states = bytes.Clone(d.content), []string{storetest.Listing(t, s)}
		var b store.Batch
		for range 1 + rnd.IntN(12) {
			ks := []store.Keyspace{store.Spec, store.Task, store.Output}[rnd.IntN(3)]
			key := []byte{byte(rnd.IntN(100))}
			if rnd.IntN(3) == 0 {
				b.Delete(ks, key)
			} else {
				b.PutSealed(ks, key, byte(rnd.Uint32()), bytes.Repeat(key, 1+rnd.IntN(4)*rnd.IntN(3000)))
			}
		}
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	content = append(content, make([]byte, max(0, len(d.content)-len(content)))...)
	most := 2 + rnd.IntN(100)
	for _, w := range d.writes {
		writeTorn(content, w, most, rnd)
	}
	return content, append(states, storetest.Listing(t, s))
}

// readNotes reads the meta pages of the file into d: they have the notes of commits, which
// watchDisk does not record.
func readNotes(t *testing.T, d *disk, dir string) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	m, _ := newestMeta(d.content)
	if _, err := file.ReadAt(d.content[:2*m.pageSize], 0); err != nil {
		t.Fatal(err)
	}
}

// writeTorn does a write without some of its sectors: it leaves out about one of most.
func writeTorn(content []byte, w write, most int, rnd *rand.Rand) {
	const sector = 512
	for at := 0; at < len(w.data); at += sector {
		if rnd.IntN(most) > 0 {
			copy(content[int(w.at)+at:], w.data[at:][:sector])
		}
	}
}

// tornTakeBack returns what a crash may leave of the file while a start takes a commit back; nil if
// there is no commit to take back.
func tornTakeBack(t *testing.T, content []byte, rnd *rand.Rand) []byte {
	t.Helper()
	if !errors.As(checkData(content), new(tornError)) {
		return nil
	}
	dir := dirWithFile(t, content)
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(takeBack(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	half := bytes.Clone(content)
	m, _ := newestMeta(content)
	at := (1 - m.otherPage(content)) * m.pageSize
	writeTorn(half, write{at: int64(at), data: readFile(t, dir)[at:][:m.pageSize]}, 2, rnd)
	return half
}
