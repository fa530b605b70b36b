package boltstore

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// goldenStore returns the file of a store that a program of that format made, without the space
// behind its last page.
func goldenStore(t *testing.T, format int) []byte {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("../../coordinator/engine/testdata/format%d.db.gz", format))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := newestMeta(content)
	return content[:m.pages*m.pageSize]
}

// nextMigrations are those of an imagined next version: the current ones and one more.
var nextMigrations = append(store.Current(), addOne)

// A store of each format is upgraded to the newest one, and a crash during the upgrade leaves any
// part of its writes. The next start of the new program must complete the upgrade. A program of the
// old format must find the store as it was before the upgrade, or refuse it and change nothing.
func TestCrashedUpgradeIsCompleted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for format := 1; format <= len(nextMigrations); format++ {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			m := migration{T: t, from: nextMigrations[:format-1], imagesByFormat: map[uint32]int{}}
			m.record(goldenStore(t, format))
			for i := range m.commits {
				tries := 6
				if i > 0 { // the first commit of a newer golden store is the same migration
					tries = 1
				}
				m.crashIn(i, tries, rnd)
			}
			t.Logf("images by the format that the crash left: %v", m.imagesByFormat)
			for f := format; f < len(nextMigrations)+1; f++ {
				if m.imagesByFormat[uint32(f)] == 0 {
					t.Errorf("no crash left a store of format %d, want at least one; images by format: %v", f, m.imagesByFormat)
				}
			}
		})
	}
}

// migration is the upgrade of one golden store.
type migration struct {
	*testing.T
	from           store.Migrations // of the program that made the store
	start          []byte           // the file before the upgrade
	commits        [][]write        // the writes of each commit; the last one is that of its meta page
	before, after  string           // the listing of the store before and after the upgrade
	imagesByFormat map[uint32]int   // how many images of each format crashes have left
}

// record upgrades a store and records the writes.
func (m *migration) record(content []byte) {
	dir := dirWithFile(m.T, content)
	s := m.open(dir, m.from)
	d := watchDisk(m.T, s, dir)
	m.start, m.before = bytes.Clone(d.content), storetest.Listing(m.T, s)
	if err := nextMigrations.Upgrade(m.Context(), s); err != nil {
		m.Fatal(err)
	}
	m.after = storetest.Listing(m.T, s)
	if err := s.Close(); err != nil {
		m.Fatal(err)
	}
	begun := 0
	for i, w := range d.writes {
		if w.at < 2*int64(s.pageSize) {
			m.commits = append(m.commits, d.writes[begun:i+1])
			begun = i + 1
		}
	}
	if want := len(nextMigrations) - len(m.from); len(m.commits) != want {
		m.Fatalf("%d commits, want one for each of the %d migrations", len(m.commits), want)
	}
}

func (m *migration) open(dir string, with store.Migrations) *Store {
	m.Helper()
	s, err := open(dir, Options{}.withDefaults(), with)
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = s.Close() })
	return s
}

// crashIn checks the images that crashes in the commit with the given number can leave: with some
// of its pages, at random, several times over; and with its writes cut off after each of them.
func (m *migration) crashIn(number, tries int, rnd *rand.Rand) {
	d := disk{content: bytes.Clone(m.start)}
	for _, commit := range m.commits[:number] {
		d.applyWrites(commit, func() bool { return true })
	}
	commit := m.commits[number]
	last := len(commit) - 1
	for range tries {
		some := disk{content: bytes.Clone(d.content)}
		some.applyWrites(commit[:last], func() bool { return rnd.IntN(2) == 0 })
		m.checkImage(some.content)
	}
	for n := range len(commit) + 1 {
		cut := disk{content: bytes.Clone(d.content)}
		cut.applyWrites(commit[:n], func() bool { return true })
		m.checkImage(cut.content)
	}
}

// applyWrites does those of the writes for which keep returns true.
func (d *disk) applyWrites(writes []write, keep func() bool) {
	for _, w := range writes {
		if keep() {
			d.write(w.data, w.at)
		}
	}
}

// checkImage opens an image with the program that made the store, and with the newest one.
func (m *migration) checkImage(image []byte) {
	dir := dirWithFile(m.T, image)
	old, err := open(dir, Options{}.withDefaults(), m.from)
	format := m.from.Format()
	newer := new(store.NewerFormatError)
	switch {
	case err == nil:
		if storetest.Listing(m.T, old) != m.before {
			m.Error("the old program opens the store, but the records are not those from before the upgrade")
		}
		_ = old.Close()
	case errors.As(err, &newer):
		format = newer.Have
		if !bytes.Equal(readFile(m.T, dir), image) {
			m.Error("the old program changed a store that it refused")
		}
	default:
		m.Errorf("open by the old program = %v, want nil or a NewerFormatError", err)
	}
	m.imagesByFormat[format]++
	s := m.open(dir, nextMigrations)
	if storetest.Listing(m.T, s) != m.after {
		m.Errorf("after a crash that left format %d, the next upgrade ends with other records than an upgrade without a crash", format)
	}
	_ = s.Close()
}

// Open does not serve a store whose upgrade fails. The store keeps its old format.
func TestFailedUpgradeIsAnError(t *testing.T) {
	dir := filledStore(t)
	broken := errors.New("broken")
	migrations := append(store.Current(),
		store.Migration{Name: "fails", Apply: func(store.Reader, *store.Batch) error { return broken }})
	if s, err := open(dir, Options{}.withDefaults(), migrations); !errors.Is(err, broken) || s != nil {
		t.Errorf("open = %v, want the error of the migration", err)
	}
	mustOpen(t, dir)
}
