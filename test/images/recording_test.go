//go:build faults && !race

package images

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

const (
	pageSize   = 4096
	sectorSize = 512
	fileName   = "lessor.db"
)

// recording is a file, and what commits wrote to it.
type recording struct {
	start   disk
	commits []commit
	states  []state // of the store, after each number of commits
}

// commit is what one commit does to the file, in this order: if necessary it enlarges the file and
// syncs that; it writes pages and a meta page, and syncs them; it writes a note that they are
// durable, which is not synced. TestOrder checks this order.
type commit struct {
	size  int64 // of the file after the commit
	pages []write
	first bool // the first one after an open: the pages are synced before the meta page is written
	meta  write
	note  write
}

// write is a write of one page.
type write struct {
	at   int64
	data []byte
}

// recorder is a store whose writes are recorded.
type recorder struct {
	*boltstore.Store
	t    *testing.T
	path string

	recording *recording
	model     *model
	now       commit // the commit under way
	opened    bool   // and nothing was committed since
}

// record opens the store in dir, and records all commits to it.
func record(t *testing.T, dir string) *recorder {
	t.Helper()
	st := open(t, dir)
	r := &recorder{Store: st, t: t, path: filepath.Join(dir, fileName), model: read(t, st)}
	r.recording = &recording{start: load(t, r.path), states: []state{r.model.state}}
	r.hookWrites()
	return r
}

func open(t *testing.T, dir string) *boltstore.Store {
	t.Helper()
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// hookWrites replaces the function by which bbolt writes. bbolt has no option for that, so this
// uses reflection.
func (r *recorder) hookWrites() {
	r.opened = true
	db := field[*bbolt.DB](reflect.ValueOf(r.Store), "db")
	write := field[func([]byte, int64) (int, error)](reflect.ValueOf(*db), "ops", "writeAt")
	through := *write
	*write = func(b []byte, at int64) (int, error) {
		r.recordWrite(b, at)
		return through(b, at)
	}
}

// field returns a pointer to an unexported field, through structs and pointers to them.
func field[T any](v reflect.Value, path ...string) *T {
	for _, name := range path {
		v = v.Elem().FieldByName(name)
		if v.Kind() == reflect.Struct {
			v = v.Addr()
		}
	}
	return (*T)(unsafe.Pointer(v.UnsafeAddr()))
}

func (r *recorder) recordWrite(b []byte, at int64) {
	if r.now.size == 0 { // the first write: if the file must grow, it has grown by now
		info, err := os.Stat(r.path)
		if err != nil {
			r.t.Fatal(err)
		}
		r.now.size = info.Size()
	}
	if at < 2*pageSize {
		r.now.meta = write{at, bytes.Clone(b)}
		return
	}
	for page := range slices.Chunk(bytes.Clone(b), pageSize) {
		r.now.pages = append(r.now.pages, write{at, page})
		at += pageSize
	}
}

// Begin implements store.Store.
func (r *recorder) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, r.Commit), nil
}

// Commit implements store.Store.
func (r *recorder) Commit(ctx context.Context, b *store.Batch) error {
	r.now = commit{first: r.opened}
	r.opened = false
	if err := r.Store.Commit(ctx, b); err != nil {
		return err
	}
	if r.now.meta.data == nil {
		r.t.Fatal("a commit wrote no meta page")
	}
	r.now.note = r.note()
	r.model.apply(b)
	r.recording.commits = append(r.recording.commits, r.now)
	r.recording.states = append(r.recording.states, r.model.state)
	return nil
}

// note reads the note, which the store writes without bbolt: it is the second half of the other
// meta page.
func (r *recorder) note() write {
	w := write{pageSize - r.now.meta.at + pageSize/2, make([]byte, pageSize/2)}
	file, err := os.Open(r.path)
	if err == nil {
		_, err = file.ReadAt(w.data, w.at)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// reopen closes the store and opens it again, and goes on with the same recording.
func (r *recorder) reopen() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.Store = open(r.t, filepath.Dir(r.path))
	r.hookWrites()
}

// finish closes the store, and checks that no write is missing in the recording.
func (r *recorder) finish() *recording {
	r.t.Helper()
	if got := read(r.t, r.Store).state; got != r.model.state {
		r.t.Fatalf("the store has %v, and the model of it %v", got, r.model.state)
	}
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	d := r.recording.start.clone()
	for _, c := range r.recording.commits {
		d.commit(c)
	}
	if was := load(r.t, r.path); was.size != d.size || !bytes.Equal(was.content, d.content) {
		r.t.Fatal("the file is not what was recorded")
	}
	return r.recording
}

// disk is what a disk holds of a file. Behind content there are only zeros.
type disk struct {
	content []byte
	size    int64
}

func load(t *testing.T, path string) disk {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := disk{size: int64(len(content))}
	d.content = bytes.TrimRight(content, "\x00")
	d.content = content[:roundUp(len(d.content))]
	return d
}

func roundUp(n int) int { return (n + pageSize - 1) / pageSize * pageSize }

func (d disk) clone() disk { return disk{bytes.Clone(d.content), d.size} }

// area returns the bytes that a write replaces.
func (d *disk) area(w write) []byte {
	if end := int(w.at) + len(w.data); end > len(d.content) {
		d.content = append(d.content, make([]byte, end-len(d.content))...)
	}
	return d.content[w.at:][:len(w.data)]
}

func (d *disk) write(w write) { copy(d.area(w), w.data) }

func (d *disk) commit(c commit) {
	d.size = c.size
	for _, w := range c.pages {
		d.write(w)
	}
	d.write(c.meta)
	d.write(c.note)
}
