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

// golden is the content of a store that a program of that format made, without the room that it does not use.
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

// upgrades are the migrations that there are, and one more, as in the next version.
var upgrades = append(store.Current(), addOne)

// A store of any format goes up to the newest, whatever a crash on the way leaves of the writes: the next start goes on. A program of the old format finds its store as
// it left it, or refuses it and changes nothing.
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

// migration is what an upgrade writes.
type migration struct {
	*testing.T
	from        store.Migrations // of the program that made the store
	start       []byte
	commits     [][]write // by meta page, which is the last write of each
	before, end string    // what is in the store
	left        map[uint32]int
}

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

// crashIn looks at what crashes in commit number leave: nothing, some or all of its pages, and all of it.
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
			m.Error("the store is of the old format, and not as it was")
		}
		_ = old.Close()
	case errors.As(err, &newer):
		format = newer.Have
		if !bytes.Equal(read(m.T, dir), image) {
			m.Error("the old program has changed what it refused")
		}
	default:
		m.Errorf("the old program: %v", err)
	}
	m.left[format]++
	s := m.open(dir, upgrades)
	if storetest.Listing(m.T, s) != m.end {
		m.Errorf("after a crash that left format %d the upgrade ends otherwise", format)
	}
	_ = s.Close()
}
