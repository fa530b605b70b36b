package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
)

// largeStore returns the directory and the file of an open store with more records than fit in one
// page.
func largeStore(t *testing.T) (s *Store, dir string, file *os.File) {
	t.Helper()
	dir = t.TempDir()
	s = mustOpen(t, dir)
	t.Cleanup(func() { _ = s.Close() })
	var b store.Batch
	for i := range 1000 {
		b.Put(store.Ready, fmt.Appendf(nil, "%04d", i), bytes.Repeat([]byte{1}, 100))
	}
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return s, dir, file
}

// changeNewestMeta changes the meta page of the newest commit in the file of an open store, so that
// bbolt reads that of the commit before.
func changeNewestMeta(t *testing.T, s *Store, file *os.File) {
	t.Helper()
	at := int64(s.durable.Load()%2)*int64(s.pageSize) + headerSize + txAt
	if _, err := file.WriteAt([]byte{0xFF}, at); err != nil {
		t.Fatal(err)
	}
}

// A store that is damaged while it serves says so to every call from then on, whichever call meets
// the damage. Nothing is committed any more, Close returns, and the next Open checks the store
// first.
func TestDamageWhileServingFailsTheStore(t *testing.T) {
	damages := []struct {
		name   string
		damage func(t *testing.T, s *Store, file *os.File)
	}{
		{"all pages but the meta pages were overwritten", func(t *testing.T, s *Store, file *os.File) {
			t.Helper()
			info, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			content := bytes.Repeat([]byte{0xA5}, int(info.Size())-2*s.pageSize)
			if _, err := file.WriteAt(content, int64(2*s.pageSize)); err != nil {
				t.Fatal(err)
			}
		}},
		{"all pages but the meta pages were zeroed", func(t *testing.T, s *Store, file *os.File) {
			t.Helper()
			info, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteAt(make([]byte, int(info.Size())-2*s.pageSize), int64(2*s.pageSize)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the file was cut off after the meta pages", func(t *testing.T, s *Store, file *os.File) {
			t.Helper()
			if err := file.Truncate(int64(2 * s.pageSize)); err != nil {
				t.Fatal(err)
			}
		}},
		{"the file was emptied", func(t *testing.T, _ *Store, file *os.File) {
			t.Helper()
			if err := file.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}},
		{"the meta pages were overwritten", func(t *testing.T, s *Store, file *os.File) {
			t.Helper()
			if _, err := file.WriteAt(make([]byte, 2*s.pageSize), 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"the newest meta page was changed", changeNewestMeta},
	}
	read := func(s *Store) error {
		return s.View(func(r store.Reader) error {
			return r.Scan(store.Ready, nil, nil, func(_, value []byte) bool { return value != nil })
		})
	}
	write := func(s *Store) error {
		var b store.Batch
		for i := range 1000 {
			b.Delete(store.Ready, fmt.Appendf(nil, "%04d", i))
		}
		return s.Commit(t.Context(), &b)
	}
	for _, d := range damages {
		for name, first := range map[string]func(*Store) error{"View": read, "Commit": write} {
			t.Run(d.name+", "+name, func(t *testing.T) {
				s, dir, file := largeStore(t)
				d.damage(t, s, file)
				before := readFile(t, dir)
				var damaged *store.DamagedError
				if err := first(s); !errors.As(err, new(*store.CommitError)) || !errors.As(err, &damaged) || damaged.Path != file.Name() {
					t.Fatalf("%s: %v, want that %s is damaged", name, err, file.Name())
				}
				t.Log(damaged)
				_, snapshotErr := s.Snapshot(new(bytes.Buffer))
				for name, err := range map[string]error{"View": read(s), "Commit": write(s), "Snapshot": snapshotErr} {
					if !errors.As(err, new(*store.DamagedError)) {
						t.Errorf("%s afterwards: %v, want that the store is damaged", name, err)
					}
				}
				s.Stats()
				closed := make(chan error, 1)
				go func() { closed <- s.Close() }()
				select {
				case err := <-closed:
					if err != nil {
						t.Errorf("Close: %v", err)
					}
				case <-time.After(time.Minute):
					t.Fatal("Close does not return")
				}
				if !bytes.Equal(readFile(t, dir), before) {
					t.Error("the store has written to its file")
				}
				if fileExists(filepath.Join(dir, markName)) {
					t.Error("the mark is still there, so that the next Open would not check first")
				}
			})
		}
	}
}

// A6, A11: if the meta page of the newest commit was changed while the store serves, neither
// Snapshot nor Compact copies the commit before it. The copy would be sound in itself, so nobody
// would notice that an acknowledged commit is missing.
func TestCopyHasTheNewestCommit(t *testing.T) {
	s, _, file := largeStore(t)
	changeNewestMeta(t, s, file)
	n, err := s.Snapshot(new(bytes.Buffer))
	if !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("Snapshot = %d bytes, %v; want that the store is damaged", n, err)
	}

	s, dir, file := largeStore(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = openToCompact(dir, Options{}.withDefaults(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	changeNewestMeta(t, s, file)
	before := readFile(t, dir)
	_, err = s.replaceWithCopy(func(*Store) error { return nil })
	if !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("replaceWithCopy = %v, want that the store is damaged", err)
	}
	if !bytes.Equal(readFile(t, dir), before) {
		t.Error("the copy has replaced the store")
	}
}

// A bug in what a caller does with a View is no damage: the panic reaches the caller, and the store
// goes on.
func TestPanicOfACallerIsNoDamage(t *testing.T) {
	s, _, _ := largeStore(t)
	for name, bug := range map[string]func(){
		"panic":       func() { panic("a bug") },
		"nil pointer": func() { _ = (*Store)(nil).path },
		"index":       func() { _ = []int{}[s.pageSize] },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: View has not panicked", name)
				}
			}()
			_ = s.View(func(store.Reader) error { bug(); return nil })
		}()
	}
	if err := s.View(func(store.Reader) error { return nil }); err != nil {
		t.Errorf("View after the panics: %v", err)
	}
}
