package boltstore

import (
	"bytes"
	"math/bits"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// lastMeta returns the file of a store after six commits, the last commit's write of its meta page,
// and the meta page that an earlier commit wrote at the same place.
func lastMeta(t *testing.T) (content []byte, last write, old []byte) {
	t.Helper()
	dir := filledStore(t)
	s := mustOpen(t, dir)
	d := watchDisk(t, s, dir)
	for n := range byte(6) {
		var b store.Batch
		b.PutSealed(store.Meta, []byte(store.MetaClock), 1, []byte{n})
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		last, d.writes = d.writes[len(d.writes)-1], nil
		if n == 1 {
			old = last.data
		}
	}
	return d.content, last, old
}

// A crash may cut off the write of a meta page at any byte. The check must then find the file
// sound, with the state either before or after the commit.
func TestTornMetaPageIsAccepted(t *testing.T) {
	content, last, _ := lastMeta(t)
	m, _ := newestMeta(content)
	page := content[last.at:][:len(last.data)]
	before := 0
	for at := range headerSize + metaSize + 1 {
		copy(page, last.old)
		copy(page[:at], last.data)
		if differ := bitsBetween(page, last.data); differ == 1 {
			continue // looks like a flipped bit, which the check refuses
		}
		if err := checkData(content); err != nil {
			t.Errorf("torn at byte %d: %v", at, err)
		}
		if found, _ := newestMeta(content); found.tx == m.tx-1 {
			before++
		}
	}
	older := content[int64(len(page))-last.at:][:len(page)]
	// as a crash in the next commit leaves it if the write ends in the root, which differs from the
	// older one by one bit
	for bit := range 64 {
		older[headerSize+fixedSize+bit/8] ^= 1 << (bit % 8)
		if err := checkData(content); err != nil {
			t.Errorf("bit %d of the root in the older page differs: %v", bit, err)
		}
		older[headerSize+fixedSize+bit/8] ^= 1 << (bit % 8)
	}
	if before < metaSize/2 {
		t.Errorf("%d torn meta pages leave the state before the commit, want at least %d", before, metaSize/2)
	}
}

func bitsBetween(a, b []byte) (n int) {
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}

// If a meta page has a content that no crash leaves, the disk has lost or changed it, and it may be
// that of the last commit. The check must refuse the file: otherwise the store would silently lack
// that commit.
func TestChangedMetaPageIsRefused(t *testing.T) {
	content, last, old := lastMeta(t)
	page := content[last.at:][:len(last.data)]
	older := content[int64(len(page))-last.at:][:len(page)]
	refuse := func(what string, page []byte, change func()) {
		t.Helper()
		was := bytes.Clone(page)
		change()
		if checkData(content) == nil {
			t.Errorf("%s: checkData returns no error", what)
		}
		copy(page, was)
		if err := checkData(content); err != nil {
			t.Fatal(err)
		}
	}
	refuse("zeros in the place of the newest", page, func() { clear(page) })
	refuse("zeros in the place of the older", older, func() { clear(older) })
	refuse("the two exchanged", content[:2*len(page)], func() {
		was := bytes.Clone(page)
		copy(page, older)
		copy(older, was)
	})
	refuse("the newest is replaced by an old one", page, func() { copy(page, old) })
	refuse("zeros in the place of the fixed fields of the newest", page, func() { clear(page[headerSize:][:fixedSize]) })
	refuse("zeros in the place of the number of the newest", page, func() { clear(page[headerSize+txAt:][:8]) })
	for bit := range 8 * metaSize {
		refuse("a flipped bit", page, func() { page[headerSize+bit/8] ^= 1 << (bit % 8) })
	}
}

// A copy that Snapshot wrote can be opened as a store, and a crash in its first commit may tear a
// meta page, too. In a copy, page 0 is always the newest meta page, even if its transaction number
// is odd, so the first commit may overwrite the newest one. Whatever the crash leaves, the store
// must then have the records of the copy.
func TestTornMetaPageOfACopy(t *testing.T) {
	for extra := range 2 {
		s := mustOpen(t, t.TempDir())
		commit := func(s *Store, n byte) {
			t.Helper()
			var b store.Batch
			b.PutSealed(store.Meta, []byte(store.MetaClock), 1, []byte{n})
			if err := s.Commit(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		for range extra {
			commit(s, 0)
		}
		var copied bytes.Buffer
		if _, err := s.Snapshot(&copied); err != nil {
			t.Fatal(err)
		}
		// as a crash leaves it if the write ends in the root, which differs from that of the copy
		// by one bit
		for bit := range 64 {
			torn := bytes.Clone(copied.Bytes())
			torn[headerSize+fixedSize+bit/8] ^= 1 << (bit % 8)
			if err := checkData(torn); err != nil {
				t.Errorf("bit %d of the root differs: %v", bit, err)
			}
		}
		want := storetest.Listing(t, s)
		dir := dirWithFile(t, copied.Bytes())
		s = mustOpen(t, dir)
		d := watchDisk(t, s, dir)
		commit(s, 1)
		last := d.writes[len(d.writes)-1]
		page := d.content[last.at:][:len(last.data)]
		for at := range headerSize + metaSize {
			copy(page, last.old)
			copy(page[:at], last.data)
			if bitsBetween(page, last.data) <= 1 {
				continue // the new page is complete, or looks as if one bit of it was flipped
			}
			torn, err := OpenReadOnly(dirWithFile(t, d.content), Options{})
			if err != nil {
				t.Errorf("torn at byte %d: %v", at, err)
				continue
			}
			if storetest.Listing(t, torn) != want {
				t.Errorf("torn at byte %d: the records are not those of the copy", at)
			}
			_ = torn.Close()
		}
	}
}

// A value may look like a meta page, and lie where the second meta page of a file with larger pages
// would lie. Open must not take it for a meta page. Otherwise anybody who submits a task could make
// the next start refuse the store.
func TestValueIsNotTakenForAMetaPage(t *testing.T) {
	const at = 1 << 20 // one of the places where meta pages are looked for
	value := make([]byte, 2*at)
	commit := func() (content []byte) {
		dir := filledStore(t)
		s := mustOpen(t, dir)
		var b store.Batch
		b.PutSealed(store.Spec, []byte("k"), 1, value)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		return readFile(t, dir)
	}
	copy(value, "it begins here")
	from := bytes.Index(commit(), value[:16])
	forged := value[at-from:]
	order.PutUint64(forged, 1)
	fields := forged[headerSize:][:metaSize]
	copy(fields, commit()[headerSize:][:fixedSize])
	order.PutUint32(fields[8:], at)
	order.PutUint64(fields[txAt:], 1_000_000)
	order.PutUint64(fields[sumAt:], metaSum(fields))
	content := commit()
	if _, ok := parseMeta(content[at:]); !ok {
		t.Fatalf("the forged meta page within the value does not lie at byte %d, so the test shows nothing", at)
	}
	if err := checkData(content); err != nil {
		t.Error(err)
	}
}
