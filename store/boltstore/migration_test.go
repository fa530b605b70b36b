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

// golden returns the file of a store that a program of that format made, without the space behind its last page.
func golden(t *testing.T, format int) []byte {
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

// upgrades are the current migrations and one more: those of the next version.
var upgrades = append(store.Current(), addOne)

// A store of each format is upgraded to the newest one, and a crash on the way leaves any part of the writes. The next start of the new program must
// complete the upgrade. A program of the old format must find its store as it left it, or refuse the store and change nothing.
func TestMigrationThatCrashes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for format := 1; format <= len(upgrades); format++ {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			m := migration{T: t, from: upgrades[:format-1], left: map[uint32]int{}}
			m.record(golden(t, format))
			for i := range m.commits {
				m.crashIn(i, rnd)
			}
			t.Logf("images by the format that the crash left: %v", m.left)
			for f := format; f < len(upgrades)+1; f++ {
				if m.left[uint32(f)] == 0 {
					t.Errorf("no crash left a store of format %d: %v", f, m.left)
				}
			}
		})
	}
}

// migration is the upgrade of one golden store.
type migration struct {
	*testing.T
	from        store.Migrations // of the program that made the store
	start       []byte           // the file before the upgrade
	commits     [][]write        // the writes of each commit; the last one is that of its meta page
	before, end string           // the listing of the store before and after the upgrade
	left        map[uint32]int   // how many images of each format crashes have left
}

// record upgrades a store and keeps what that writes.
func (m *migration) record(content []byte) {
	dir := dirWith(m.T, content)
	s := m.open(dir, m.from)
	d := watchDisk(m.T, s, dir)
	m.start, m.before = bytes.Clone(d.content), storetest.Listing(m.T, s)
	if err := upgrades.Upgrade(m.Context(), s); err != nil {
		m.Fatal(err)
	}
	m.end = storetest.Listing(m.T, s)
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
	if want := len(upgrades) - len(m.from); len(m.commits) != want {
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

// crashIn checks what crashes in commit number leave: some of its pages, at random; and its writes cut off after each one of them.
func (m *migration) crashIn(number int, rnd *rand.Rand) {
	d := disk{content: bytes.Clone(m.start)}
	for _, commit := range m.commits[:number] {
		d.writeAll(commit, func() bool { return true })
	}
	commit := m.commits[number]
	last := len(commit) - 1
	for range 6 {
		some := disk{content: bytes.Clone(d.content)}
		some.writeAll(commit[:last], func() bool { return rnd.IntN(2) == 0 })
		m.look(some.content)
	}
	for n := range len(commit) + 1 {
		cut := disk{content: bytes.Clone(d.content)}
		cut.writeAll(commit[:n], func() bool { return true })
		m.look(cut.content)
	}
}

// writeAll does those of the writes for which there returns true.
func (d *disk) writeAll(writes []write, there func() bool) {
	for _, w := range writes {
		if there() {
			d.write(w.data, w.at)
		}
	}
}

// look opens an image with the program that made the store, and with the newest one.
func (m *migration) look(image []byte) {
	dir := dirWith(m.T, image)
	old, err := open(dir, Options{}.withDefaults(), m.from)
	format := m.from.Format()
	newer := new(store.NewerFormatError)
	switch {
	case err == nil:
		if storetest.Listing(m.T, old) != m.before {
			m.Error("the old program opens the store, but its records are not those of before the upgrade")
		}
		_ = old.Close()
	case errors.As(err, &newer):
		format = newer.Have
		if !bytes.Equal(read(m.T, dir), image) {
			m.Error("the old program changed a store that it refused")
		}
	default:
		m.Errorf("open by the old program = %v, want nil or a NewerFormatError", err)
	}
	m.left[format]++
	s := m.open(dir, upgrades)
	if storetest.Listing(m.T, s) != m.end {
		m.Errorf("after a crash that left format %d, the next upgrade ends with other records than one without a crash", format)
	}
	_ = s.Close()
}
