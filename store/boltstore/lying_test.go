package boltstore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// disk is a copy of a file and the writes to it.
type disk struct {
	content []byte
	writes  []write // since the test cleared them, in order
}

// write is a write of one or more pages.
type write struct {
	at         int64
	data, over []byte // what was written, and what it replaced
}

// watchDisk returns a disk that follows what bbolt writes to the file of a store, by a hook in a private field. It does not see the notes of commits,
// which the store writes itself.
func watchDisk(t *testing.T, s *Store, dir string) *disk {
	t.Helper()
	d := &disk{content: read(t, dir)}
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

// If a disk acknowledges a flush but loses one write of the commit, checkData notices: by the form of the pages or, if an older page is in the place
// of the lost one, by the sums. The test does not lose meta pages: without its meta page, the file simply is as after the commit before.
func TestLostWriteIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	d := watchDisk(t, s, dir)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &lifetimes{rnd: rand.New(rand.NewPCG(seed, 0))}
	lost, bySums := 0, 0
	for range 60 {
		d.writes = nil
		var b store.Batch
		h.fill(&b)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for _, w := range d.writes {
			if w.at < 2*int64(s.pageSize) || bytes.Equal(w.data, w.over) {
				continue
			}
			area := d.content[w.at:][:len(w.data)]
			copy(area, w.over)
			lost++
			if checkData(d.content) == nil && !openedAs(t, s, d.content) {
				t.Errorf("the write of page %d was lost, and the check does not notice", w.at/int64(s.pageSize))
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
		t.Error("every lost write was noticed by the form of the pages, so the sums were not tested")
	}
}

// openedAs reports whether a file holds the same records as the store, or is refused. A lost write may change no record: bbolt does not clear a page
// behind its last record, so old and new page may differ only there.
func openedAs(t *testing.T, s *Store, content []byte) bool {
	t.Helper()
	image, err := OpenReadOnly(dirWith(t, content), Options{})
	if corrupt := new(store.CorruptError); errors.As(err, &corrupt) {
		return true // an old root page that has no record at all, not even the format
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = image.Close() }()
	return storetest.Listing(t, s) == storetest.Listing(t, image)
}

// lifetimes fills batches with random steps of the lives of tasks, so that pages are freed and used again.
type lifetimes struct {
	lives
	rnd     *rand.Rand
	next    uint64
	waiting []lease.TaskID
	held    []lease.TaskID
}

func (h *lifetimes) fill(b *store.Batch) {
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
