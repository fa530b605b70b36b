package boltstore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
)

func nothing(*Store) error { return nil }

// backup returns a file with a snapshot of a filled store.
func backup(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup")
	var copied bytes.Buffer
	if _, err := mustOpen(t, filled(t)).Snapshot(&copied); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The store gets its name only after prepare has returned, and has the records of the backup and what prepare committed.
func TestRestore(t *testing.T) {
	file, dir := backup(t), filepath.Join(t.TempDir(), "not", "there yet")
	err := Restore(file, dir, Options{}, func(s *Store) error {
		if _, err := os.Stat(filepath.Join(dir, fileName)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the store has its name before prepare has returned: stat = %v, want fs.ErrNotExist", err)
		}
		var b store.Batch
		b.PutSealed(store.Meta, []byte(store.MetaClock), 1, []byte{1})
		return s.Commit(t.Context(), &b)
	})
	if err != nil {
		t.Fatal(err)
	}
	if names := namesIn(t, dir); names != fileName {
		t.Errorf("files: %s, want %s", names, fileName)
	}
	want, err := OpenReadOnly(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = want.Close() }()
	err = mustOpen(t, dir).View(func(r store.Reader) error {
		if got := r.Get(store.Meta, []byte(store.MetaClock)); len(got) == 0 {
			t.Error("the record that prepare committed is not there")
		}
		return want.View(func(old store.Reader) error {
			return old.Scan(store.Spec, nil, nil, func(key, value []byte) bool {
				if !bytes.Equal(r.Get(store.Spec, key), value) {
					t.Errorf("record %x is not as in the backup", key)
				}
				return true
			})
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRestoreThatFailsLeavesNothing(t *testing.T) {
	no := errors.New("no")
	whole, dir := backup(t), t.TempDir()
	cut := filepath.Join(t.TempDir(), "cut")
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, content[:len(content)-5000], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Restore(whole, dir, Options{}, func(*Store) error { return no }); !errors.Is(err, no) {
		t.Errorf("Restore = %v, want the error of prepare", err)
	}
	if err := Restore(cut, dir, Options{}, nothing); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("Restore of a file that was cut off = %v, want a DamagedError", err)
	}
	if err := Restore(dir+"/nowhere", dir, Options{}, nothing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Restore of a file that does not exist = %v, want fs.ErrNotExist", err)
	}
	if names := namesIn(t, dir); names != "" {
		t.Errorf("files: %s, want none", names)
	}
}

func TestRestoreWantsAnEmptyDirectory(t *testing.T) {
	file, dir := backup(t), filled(t)
	before := read(t, dir)
	full := new(store.NotEmptyError)
	if err := Restore(file, dir, Options{}, nothing); !errors.As(err, &full) || full.Dir != dir || full.Name != fileName {
		t.Errorf("Restore = %v, want a NotEmptyError that names the store", err)
	}
	if !bytes.Equal(before, read(t, dir)) {
		t.Error("Restore changed the store that was there")
	}
}

// Restore does not write through a symbolic link that has the name of its unfinished file. Otherwise the owner of the directory could make root overwrite any
// file.
func TestRestoreWritesNothingThroughALink(t *testing.T) {
	file, dir, other := backup(t), t.TempDir(), filepath.Join(t.TempDir(), "other")
	err := errors.Join(os.WriteFile(other, []byte("kept"), 0o600), os.Symlink(other, filepath.Join(dir, restoringName)))
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(file, dir, Options{}, nothing); err == nil {
		t.Error("Restore wrote through a link")
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
		t.Errorf("the other file has become %d bytes (%v)", len(text), err)
	}
}

// A store that a start made after Restore had found the directory empty is not replaced.
func TestRestoreReplacesNoStore(t *testing.T) {
	file, dir := backup(t), t.TempDir()
	var made []byte
	err := Restore(file, dir, Options{}, func(*Store) error {
		err := createIfMissing(filepath.Join(dir, fileName), store.Current())
		made = read(t, dir)
		return err
	})
	if !errors.As(err, new(*store.NotEmptyError)) {
		t.Errorf("Restore = %v, want a NotEmptyError", err)
	}
	if names := namesIn(t, dir); names != fileName || !bytes.Equal(made, read(t, dir)) {
		t.Errorf("Restore changed the store that was there, or left something; files: %s", names)
	}
}

// A restore that was killed leaves a file under the name restoringName. Because of that file Open, OpenReadOnly and Compact refuse the directory, so
// that Open does not make an empty store there. Restore can be repeated.
func TestRestoreThatWasKilled(t *testing.T) {
	file, dir := backup(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, restoringName), make([]byte, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"Open":         func() error { _, err := Open(dir, Options{}); return err },
		"OpenReadOnly": func() error { _, err := OpenReadOnly(dir, Options{}); return err },
		"Compact":      func() error { _, _, err := Compact(dir, Options{}, nothing); return err },
	} {
		if err := open(); !errors.As(err, new(*store.UnfinishedError)) {
			t.Errorf("%s = %v, want an UnfinishedError", what, err)
		}
	}
	if names := namesIn(t, dir); names != restoringName {
		t.Errorf("files: %s, want %s", names, restoringName)
	}
	if err := Restore(file, dir, Options{}, nothing); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

// While a restore into a directory runs, a second one is refused and does not disturb the first.
func TestRestoresDoNotMix(t *testing.T) {
	file, dir := backup(t), t.TempDir()
	err := Restore(file, dir, Options{}, func(*Store) error {
		if err := Restore(file, dir, Options{}, nothing); !errors.As(err, new(*store.InUseError)) {
			t.Errorf("the second Restore = %v, want an InUseError", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

func TestOpenReadOnlyChangesNothing(t *testing.T) {
	dir := filled(t)
	before := read(t, dir)
	s, err := OpenReadOnly(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := Open(dir, Options{LockTimeout: time.Millisecond}); !errors.As(err, new(*store.InUseError)) {
		t.Errorf("Open while the store is open for reading = %v, want an InUseError", err)
	}
	second, err := OpenReadOnly(filepath.Join(dir, fileName), Options{})
	if err != nil {
		t.Fatalf("a second OpenReadOnly = %v, want no error", err)
	}
	defer func() { _ = second.Close() }()
	var b store.Batch
	b.Put(store.Task, []byte("k"), nil)
	if err := s.Commit(t.Context(), &b); !errors.As(err, new(*store.CommitError)) {
		t.Errorf("Commit = %v, want a CommitError", err)
	}
	if names := namesIn(t, dir); names != fileName || !bytes.Equal(before, read(t, dir)) {
		t.Errorf("files: %s, want %s as it was", names, fileName)
	}
	if _, err := OpenReadOnly(t.TempDir(), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenReadOnly of an empty directory = %v, want fs.ErrNotExist", err)
	}
}
