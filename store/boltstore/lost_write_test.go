package boltstore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// disk is a copy of a store's file, and the writes to the file.
type disk struct {
	content []byte
	writes  []write // in order, since the test last cleared the list
}

// write is a write of one or more pages.
type write struct {
	at        int64
	data, old []byte // the written bytes, and those that they replaced
}

// watchDisk returns a disk that records what bbolt writes to the file of a store. It sets a hook in
// a private field of bbolt. It does not record the notes of commits, which the store writes itself.
func watchDisk(t *testing.T, s *Store, dir string) *disk {
	t.Helper()
	d := &disk{content: readFile(t, dir)}
	field := reflect.ValueOf(s.db).Elem().FieldByName("ops").FieldByName("writeAt")
	hook := (*func([]byte, int64) (int, error))(unsafe.Pointer(field.UnsafeAddr()))
	through := *hook
	*hook = func(b []byte, at int64) (int, error) {
		d.write(b, at)
		return through(b, at)
	}
	return d
}

func (d *disk) write(b []byte, at int64) {
	if grow := int(at) + len(b) - len(d.content); grow > 0 {
		d.content = append(d.content, make([]byte, grow)...)
	}
	area := d.content[at:][:len(b)]
	d.writes = append(d.writes, write{at, bytes.Clone(b), bytes.Clone(area)})
	copy(area, b)
}

// If a disk acknowledges a flush but loses one write of the commit, checkData notices: by the form
// of the pages or, if a valid older page is in the place of the lost one, by the sums. The test
// does not lose meta pages: without the newest meta page, the file is as after the commit before.
func TestLostWriteIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	d := watchDisk(t, s, dir)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &randomSteps{rnd: rand.New(rand.NewPCG(seed, 0))}
	lost, bySums := 0, 0
	for range 60 {
		d.writes = nil
		var b store.Batch
		h.fill(&b)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for _, w := range d.writes {
			if w.at < 2*int64(s.pageSize) || bytes.Equal(w.data, w.old) {
				continue
			}
			area := d.content[w.at:][:len(w.data)]
			copy(area, w.old)
			lost++
			if checkData(d.content) == nil && !sameRecordsOrRefused(t, s, d.content) {
				t.Errorf("the write of page %d was lost, and checkData returns no error", w.at/int64(s.pageSize))
			}
			if c, err := newChecker(d.content); err == nil && c.walk() == nil {
				bySums++
			}
			copy(area, w.data)
		}
		if err := checkData(d.content); err != nil {
			t.Fatalf("the file without a loss is not sound: %v", err)
		}
	}
	t.Logf("%d lost writes, %d of them noticed by the sums alone", lost, bySums)
	if bySums == 0 {
		t.Error("every lost write was noticed by the form of the pages, so the test has not tested the sums")
	}
}

// If the disk loses the write of the root page, and everything else is as it was when the older
// root page was written, only the number of the commit beside the sums shows it.
func TestOldRootPageIsNoticed(t *testing.T) {
	r := changeRootPage(t)
	copy(r.content[r.at:], r.old)
	// otherwise the commit counts as one that was cut off
	copy(r.content[noteAt(r.tx, r.s.pageSize):], encodeNote(r.tx))
	if err := checkData(r.content); err == nil || !strings.Contains(err.Error(), "its records are of number") {
		t.Errorf("checkData = %v, want an error about the number of the commit", err)
	}
}

// A loss of power may leave the root page with a part of the newest commit and a part of an older
// one, which is still on its page. Wherever the border is, checkData notices. Without the checksum
// of the sums it would not if the border is within them: then an old record is there with its old
// sum.
func TestTornRootPageIsNoticed(t *testing.T) {
	r := changeRootPage(t)
	root := bytes.Clone(r.content[r.at:][:len(r.old)])
	for border := range root {
		for what, torn := range map[string][]byte{
			"the part before is new": slices.Concat(root[:border], r.old[border:]),
			"the part before is old": slices.Concat(r.old[:border], root[border:]),
		} {
			if bytes.Equal(torn, root) {
				continue
			}
			copy(r.content[r.at:], torn)
			if checkData(r.content) == nil && !sameRecordsOrRefused(t, r.s, r.content) {
				t.Errorf("border at byte %d of the root page, and %s: checkData returns no error", border, what)
			}
		}
	}
}

// rootPage is a file whose newest commit replaced an older root page, and changed nothing but
// records within the root page.
type rootPage struct {
	s       *Store
	tx      uint64 // the number of the newest commit
	content []byte
	at      int64  // of the page
	old     []byte // what the newest commit replaced
}

func changeRootPage(t *testing.T) rootPage {
	t.Helper()
	dir := filledStore(t)
	s := mustOpen(t, dir)
	if s.background != nil {
		s.background.done.Wait() // until then, no commit uses the page of an older root again
	}
	d := watchDisk(t, s, dir)
	for n := range byte(6) {
		d.writes = nil
		var b store.Batch
		b.PutSealed(store.Meta, []byte(store.MetaClock), 1, []byte{n}) // before the sums in the page
		b.PutSealed(store.Token, []byte("token"), 1, []byte{n})        // behind them
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	m, _ := newestMeta(d.content)
	r := rootPage{s: s, tx: m.tx, content: d.content, at: int64(m.root * m.pageSize)}
	for _, w := range d.writes {
		if w.at == r.at {
			r.old = w.old
		}
	}
	if r.old == nil {
		t.Fatal("the commit did not write the root page")
	}
	return r
}

// sameRecordsOrRefused reports whether OpenReadOnly refuses a file, or finds the same records in it
// as in the store. A lost write may change no record: bbolt does not clear a page behind its last
// record, so the old and the new page may differ only there.
func sameRecordsOrRefused(t *testing.T, s *Store, content []byte) bool {
	t.Helper()
	image, err := OpenReadOnly(dirWithFile(t, content), Options{})
	if corrupt := new(store.CorruptError); errors.As(err, &corrupt) {
		return true // an old root page that has no record at all, not even the format
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = image.Close() }()
	return storetest.Listing(t, s) == storetest.Listing(t, image)
}

// randomSteps fills batches with random steps of tasks, so that pages are freed and reused.
type randomSteps struct {
	taskSteps
	rnd     *rand.Rand
	next    uint64
	waiting []lease.TaskID
	held    []lease.TaskID
}

func (h *randomSteps) fill(b *store.Batch) {
	for range h.rnd.IntN(30) {
		h.next++
		h.submit(b, lease.TaskID{Space: 1, Seq: h.next})
		h.waiting = append(h.waiting, lease.TaskID{Space: 1, Seq: h.next})
	}
	for range h.rnd.IntN(len(h.waiting)/2 + 1) {
		h.payload[h.rnd.IntN(benchRow)]++
		h.grant(b, h.waiting[0])
		h.held, h.waiting = append(h.held, h.waiting[0]), h.waiting[1:]
	}
	for range h.rnd.IntN(len(h.held)/2 + 1) {
		h.complete(b, h.held[0])
		h.held = h.held[1:]
	}
	b.PutSealed(store.Meta, []byte(store.MetaClock), 1, []byte{byte(h.next), byte(h.rnd.Uint32())})
}

// A store of a format with sums is refused if its sums are lost: without them, nothing shows
// whether its records are complete.
func TestStoreWithoutItsSumsIsRefused(t *testing.T) {
	since := store.Current()[:sumsSince-1]
	dir := dirWithFile(t, goldenStore(t, sumsSince))
	s, err := open(dir, Options{}.withDefaults(), since)
	if err != nil {
		t.Fatal(err)
	}
	lose := func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte(sumsBucket)) }
	again := func(*bbolt.Tx) error { return nil } // so that Open cannot take the newest commit back and find the sums
	if err := errors.Join(s.db.Update(lose), s.db.Update(again), s.Close()); err != nil {
		t.Fatal(err)
	}
	path, was := filepath.Join(dir, fileName), readFile(t, dir)
	for _, c := range []struct {
		what string
		open func() (*Store, error)
		path string // of the store that the error names
	}{
		{"Open", func() (*Store, error) { return Open(dir, Options{}) }, path},
		{"Open by a program of that format", func() (*Store, error) { return open(dir, Options{}.withDefaults(), since) }, path},
		{"OpenReadOnly", func() (*Store, error) { return OpenReadOnly(dir, Options{}) }, path},
		{"Compact", func() (*Store, error) { _, _, err := Compact(dir, Options{}, noCheck); return nil, err }, path},
		{"Restore", func() (*Store, error) { return nil, Restore(path, t.TempDir(), Options{}, noCheck) }, ""},
	} {
		s, err := c.open()
		if damaged := new(store.DamagedError); !errors.As(err, &damaged) || c.path != "" && damaged.Path != c.path {
			t.Errorf("%s = %v, want a DamagedError of %q", c.what, err, c.path)
		}
		if s != nil {
			_ = s.Close()
		}
	}
	if !bytes.Equal(readFile(t, dir), was) {
		t.Error("a store that was refused has changed")
	}
}

// A store of a format whose sums have a checksum is refused if the checksum is missing or wrong.
func TestStoreWithoutTheChecksumOfItsSumsIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(stored []byte) []byte{
		"missing": func(stored []byte) []byte { return stored[sumsSealSize:] },
		"wrong":   func(stored []byte) []byte { stored[0]++; return stored },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filledStore(t)
			s := mustOpen(t, dir)
			write := func(tx *bbolt.Tx) error {
				all, err := computeSums(tx)
				if err != nil {
					return err
				}
				return tx.Bucket([]byte(sumsBucket)).Put([]byte(sumsKey), spoil(all.encode(uint64(tx.ID()))))
			}
			// twice, so that Open cannot take the newest commit back
			if err := errors.Join(s.db.Update(write), s.db.Update(write), s.Close()); err != nil {
				t.Fatal(err)
			}
			if err := checkData(readFile(t, dir)); err == nil {
				t.Error("checkData returns no error")
			}
			for what, open := range map[string]func(string, Options) (*Store, error){"Open": Open, "OpenReadOnly": OpenReadOnly} {
				s, err := open(dir, Options{})
				if !errors.As(err, new(*store.DamagedError)) {
					t.Errorf("%s = %v, want a DamagedError", what, err)
				}
				if s != nil {
					_ = s.Close()
				}
			}
		})
	}
}

// Compact adds no sums to a store of a format without them: a program of that format would not keep
// them up to date.
func TestCompactAddsNoSums(t *testing.T) {
	dir := dirWithFile(t, goldenStore(t, sumsSince-1))
	if _, _, err := Compact(dir, Options{}, noCheck); err != nil {
		t.Fatal(err)
	}
	s, err := open(dir, Options{}.withDefaults(), store.Current()[:sumsSince-2])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	err = s.db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte(sumsBucket)) != nil {
			t.Error("the compacted store has sums, want none")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Compact leaves the sums in the form in which a program of the store's format can read them:
// before format 7, without a checksum. Otherwise that program, which may still serve the store,
// would call it damaged.
func TestCompactKeepsTheFormOfTheSums(t *testing.T) {
	for format := sumsSince; format <= int(store.Current().Format()); format++ {
		dir := dirWithFile(t, goldenStore(t, format))
		if _, _, err := Compact(dir, Options{}, noCheck); err != nil {
			t.Fatal(err)
		}
		s, err := OpenReadOnly(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		err = s.db.View(func(tx *bbolt.Tx) error {
			stored, ok := decodeSums(tx.Bucket([]byte(sumsBucket)).Get([]byte(sumsKey)))
			if !ok || stored.sealed != (format >= sealSince) || stored.tx != uint64(tx.ID()) {
				t.Errorf("format %d: the sums can be read: %v; they have a checksum: %v, and are of commit %d; want that of format %d, of commit %d",
					format, ok, stored.sealed, stored.tx, format, tx.ID())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
