package boltstore

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// lastCommit is a file after a commit that was acknowledged, with all that it wrote, and what was in the store before it.
type lastCommit struct {
	*disk
	pageSize uint64
	number   uint64
	before   string
	after    string
}

func commitLast(t *testing.T) *lastCommit { return commitLastOf(t, store.Current()) }

// commitLastOf is commitLast by a program of another version.
func commitLastOf(t *testing.T, version store.Migrations) *lastCommit {
	t.Helper()
	dir := filled(t)
	s, err := open(dir, Options{}.withDefaults(), version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	commitSome(t, s, 1, 3)
	c := &lastCommit{disk: watchDisk(t, s, dir), before: storetest.Listing(t, s)}
	commitSome(t, s, 4, 1)
	m, _ := newestMeta(c.content)
	c.pageSize, c.number, c.after = m.pageSize, m.tx, storetest.Listing(t, s)
	return c
}

// commitSome makes n commits, each with a value of several pages.
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

// whole reports whether a file holds all of the commit: a list of free pages that is an older one, and still right, may take the place of the last.
func (c *lastCommit) whole(t *testing.T, content []byte) bool {
	t.Helper()
	if checkData(content) != nil {
		return false
	}
	s, err := OpenReadOnly(dirWith(t, content), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	return storetest.Listing(t, s) == c.after
}

// pages are the pages that the commit wrote, one by one, and were other ones before.
func (c *lastCommit) pages() (all []write) {
	for _, w := range c.writes {
		for at := uint64(0); at < uint64(len(w.data)); at += c.pageSize {
			page := write{w.at + int64(at), w.data[at:][:c.pageSize], w.over[at:][:c.pageSize]}
			if page.at >= 2*int64(c.pageSize) && !bytes.Equal(page.data, page.over) {
				all = append(all, page)
			}
		}
	}
	return all
}

// without is what a loss of power leaves that kept all but one page; whether the commit had been noted as durable is up to the caller.
func (c *lastCommit) without(page write) []byte {
	content := bytes.Clone(c.content)
	copy(content[page.at:], page.over)
	return content
}

// A commit of which a loss of power has left a part was told to nobody: it is taken back, for good, and whoever only looks is told so (A6).
func TestTornCommitIsTakenBack(t *testing.T) {
	c := commitLast(t)
	pages := c.pages()
	for _, w := range pages {
		if c.whole(t, c.without(w)) {
			continue
		}
		dir := dirWith(t, c.without(w))
		if _, err := OpenReadOnly(dir, Options{}); !errors.As(err, new(*store.TornError)) {
			t.Errorf("page %d is missing, and who only looks is told %v", w.at/int64(c.pageSize), err)
		}
		for _, told := range []string{"taken back", ""} { // once
			var log strings.Builder
			s, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatalf("page %d is missing: %v", w.at/int64(c.pageSize), err)
			}
			if storetest.Listing(t, s) != c.before {
				t.Errorf("page %d is missing, and the store is not that of the commit before", w.at/int64(c.pageSize))
			}
			if (told == "") != (log.String() == "") || !strings.Contains(log.String(), told) {
				t.Errorf("the log of the start: %q, want %q", log.String(), told)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			unmark(s.path) // the next start checks again
		}
		goOn(t, dir)
	}
	if len(pages) < 5 {
		t.Errorf("%d pages", len(pages))
	}
}

// A store of a newer version is called that, and not damaged, by a program that finds its last commit cut off, and is left as it is.
func TestTornCommitOfNewerStore(t *testing.T) {
	c := commitLastOf(t, upgrades)
	for _, w := range c.pages() {
		refusedAsNewer(t, c.without(w))
	}
}

// What a newer version changed about the sums is no damage.
func TestOtherSumsOfNewerStore(t *testing.T) {
	dir := filled(t)
	s, err := open(dir, Options{}.withDefaults(), upgrades)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error { // as with one keyspace more
		bucket := tx.Bucket([]byte(sumsBucket))
		return bucket.Put([]byte(sumsKey), append(bytes.Clone(bucket.Get([]byte(sumsKey))), make([]byte, 8)...))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	refusedAsNewer(t, read(t, dir))
}

func refusedAsNewer(t *testing.T, content []byte) {
	t.Helper()
	dir := dirWith(t, content)
	_, err := Open(dir, Options{})
	_, readOnly := OpenReadOnly(dir, Options{})
	for _, err := range []error{err, readOnly} {
		newer := new(store.NewerFormatError)
		if !errors.As(err, &newer) || newer.Have != upgrades.Format() || newer.Want != store.Current().Format() {
			t.Errorf("it is refused with %v, want a NewerFormatError of %d and %d", err, upgrades.Format(), store.Current().Format())
		}
	}
	if !bytes.Equal(read(t, dir), content) {
		t.Error("it was changed")
	}
}

// goOn commits where a commit was taken back.
func goOn(t *testing.T, dir string) {
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
		t.Error("what was committed after one was taken back is not there")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A commit that is noted as durable was told to somebody: where a page of it is missing, the store is refused, or who reads it is told, rather than a commit taken back that counts (A6).
func TestDurableCommitIsNotTakenBack(t *testing.T) {
	c := commitLast(t)
	refused := 0
	for _, w := range c.pages() {
		content := c.without(w)
		if c.whole(t, content) {
			continue
		}
		copy(content[noteAt(c.number, int(c.pageSize)):], note(c.number))
		s, err := Open(dirWith(t, content), Options{})
		if errors.As(err, new(*store.DamagedError)) || errors.As(err, new(*store.CorruptError)) { // the latter where it was the page with the format
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		err = s.View(func(r store.Reader) error {
			for key := range byte(5) { // all of them lie in one leaf
				if value := r.Get(store.Output, []byte{key}); value != nil && !store.Sealed(store.Output, []byte{key}, value) {
					return errHalf
				}
			}
			return nil
		})
		if !errors.Is(err, errHalf) {
			t.Errorf("page %d is missing, and nobody is told", w.at/int64(c.pageSize))
		}
		_ = s.Close()
	}
	if refused == 0 {
		t.Error("no store was refused")
	}
}

// The note of a commit that was acknowledged is in the file.
func TestNotes(t *testing.T) {
	dir := filled(t)
	s := mustOpen(t, dir)
	for i := range byte(4) {
		commitSome(t, s, i, 1)
		content := read(t, dir)
		m, _ := newestMeta(content)
		if !bytes.HasPrefix(content[noteAt(m.tx, s.pageSize):], note(m.tx)) {
			t.Errorf("commit %d is not noted", m.tx)
		}
		if err := checkData(content); err != nil {
			t.Error(err)
		}
	}
}

// Who reads is told nothing that a loss of power could undo: what a commit has changed is told once it is durable (A6).
func TestViewWaitsUntilDurable(t *testing.T) {
	s := mustOpen(t, filled(t))
	commitSome(t, s, 1, 1)
	newest := s.durable.Load()
	s.durable.Store(newest - 1) // as while a commit that has written everything flushes it
	var durable atomic.Bool
	read, told := make(chan struct{}), make(chan bool)
	go func() {
		err := s.View(func(store.Reader) error { close(read); return nil })
		told <- durable.Load() && err == nil
	}()
	<-read
	for range 1000 {
		runtime.Gosched() // a View that does not wait returns
	}
	s.ended(func() {
		durable.Store(true)
		s.durable.Store(newest)
	})
	if !<-told {
		t.Error("View has returned before the commit that it has seen was durable")
	}
}

// Who has read what a failed flush may have lost is told of the failure, and not of what was read (A6).
func TestViewOfWhatFailed(t *testing.T) {
	s := mustOpen(t, filled(t))
	commitSome(t, s, 1, 1)
	s.durable.Store(s.durable.Load() - 1)
	err := s.View(func(store.Reader) error { return s.fail(errHalf) })
	if commit := new(store.CommitError); !errors.As(err, &commit) {
		t.Errorf("View = %v, want a CommitError", err)
	}
}

// A sector that was being written when the power went may be one that cannot be read: the commit is taken back all the same.
func TestTornPageThatCanNotBeRead(t *testing.T) {
	c := commitLast(t)
	for _, w := range c.pages() {
		data, err := syscall.Mmap(-1, 0, len(c.content), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		copy(data, c.content)
		if err := syscall.Mprotect(data[w.at:][:c.pageSize], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		if err := checkData(data); !errors.As(err, new(tornError)) {
			t.Errorf("page %d cannot be read: %v, want a tornError", w.at/int64(c.pageSize), err)
		}
		if err := syscall.Munmap(data); err != nil {
			t.Fatal(err)
		}
	}
}

// Crashes one after the other, with starts between them that take commits back, and are cut off in that: each leaves the store as before its commit or as after it (A6). After a commit
// that was taken back the next one has its number.
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
		content := read(t, dir)
		m, _ := newestMeta(content)
		content = content[:m.pages*m.pageSize]
		for range 12 {
			if half := halfTakenBack(t, content, rnd); half != nil {
				content = half
				counts["cut off while a commit was taken back"]++
			}
			dir := dirWith(t, content)
			s, err := Open(dir, Options{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			at := slices.Index(states, storetest.Listing(t, s))
			if at < 0 {
				t.Fatalf("after a crash the store is neither as before the commit nor as after it: %v", counts)
			}
			counts[[]string{"as before", "as after"}[at]]++
			content, states = crashAfter(t, s, dir, 2+rnd.IntN(4), rnd)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Log(counts)
	if counts["as after"] == 0 || counts["cut off while a commit was taken back"] == 0 {
		t.Errorf("not everything happened: %v", counts)
	}
}

// crashAfter makes n commits, and returns what a crash in the last may leave, and what may then be in the store.
func crashAfter(t *testing.T, s *Store, dir string, n int, rnd *rand.Rand) (content []byte, states []string) {
	t.Helper()
	d := watchDisk(t, s, dir)
	m, _ := newestMeta(d.content)
	d.content = d.content[:m.pages*m.pageSize]
	for range n {
		d.writes = nil
		withNote(t, d, dir)
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
		tear(content, w, most, rnd)
	}
	return content, append(states, storetest.Listing(t, s))
}

// withNote brings what is known of a disk up to date: notes are not written by way of bbolt.
func withNote(t *testing.T, d *disk, dir string) {
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

// tear has each sector of a write, but for about one in most.
func tear(content []byte, w write, most int, rnd *rand.Rand) {
	const sector = 512
	for at := 0; at < len(w.data); at += sector {
		if rnd.IntN(most) > 0 {
			copy(content[int(w.at)+at:], w.data[at:][:sector])
		}
	}
}

// halfTakenBack is what a crash leaves of a start that takes a commit back; nil where there is none to be.
func halfTakenBack(t *testing.T, content []byte, rnd *rand.Rand) []byte {
	t.Helper()
	if !errors.As(checkData(content), new(tornError)) {
		return nil
	}
	dir := dirWith(t, content)
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(takeBack(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	half := bytes.Clone(content)
	m, _ := newestMeta(content)
	at := (1 - m.other(content)) * m.pageSize
	tear(half, write{at: int64(at), data: read(t, dir)[at:][:m.pageSize]}, 2, rnd)
	return half
}
