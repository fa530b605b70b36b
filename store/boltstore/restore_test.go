package boltstore

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
)

func noCheck(*Store) error { return nil }

// backupFile returns a file with a snapshot of a filled store.
func backupFile(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup")
	var copied bytes.Buffer
	if _, err := mustOpen(t, filledStore(t)).Snapshot(&copied); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newerStore returns the directory of a closed store of a format that this program does not know.
func newerStore(t *testing.T) (dir string) {
	t.Helper()
	dir = filledStore(t)
	s, err := open(dir, Options{}.withDefaults(), nextMigrations)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A store that is open is not restored, because the copy would be another store that can be served.
// A backup that others read is.
func TestRestoreOfAStoreInUse(t *testing.T) {
	source, dir := filledStore(t), filepath.Join(t.TempDir(), "new")
	s := mustOpen(t, source)
	err := Restore(filepath.Join(source, fileName), dir, Options{LockTimeout: 1}, noCheck)
	if inUse, ok := errors.AsType[*store.InUseError](err); !ok || inUse.PID != os.Getpid() {
		t.Errorf("of an open store: %v, want a *store.InUseError that names its process", err)
	}
	if fileExists(dir) {
		t.Error("the directory was made")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenReadOnly(source, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	if err := Restore(filepath.Join(source, fileName), dir, Options{LockTimeout: 1}, noCheck); err != nil {
		t.Errorf("of a closed store that somebody reads: %v", err)
	}
}

// If root restores, the user of the directory can serve the store. A directory that is made gets
// the owner of the backup.
func TestRestoreKeepsTheOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give files away")
	}
	file, top := backupFile(t), t.TempDir()
	const ofDir, ofFile = 12345, 23456
	existing, missing := filepath.Join(top, "existing"), filepath.Join(top, "not", "there")
	if err := errors.Join(os.Mkdir(existing, 0o700), os.Chown(existing, ofDir, ofDir), os.Chown(file, ofFile, ofFile)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]uint32{existing: ofDir, missing: ofFile} {
		if err := Restore(file, dir, Options{}, noCheck); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{dir, filepath.Join(dir, fileName)} {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if of := info.Sys().(*syscall.Stat_t); of.Uid != want || of.Gid != want {
				t.Errorf("%s belongs to %d:%d, want %d", name, of.Uid, of.Gid, want)
			}
		}
	}
}

// The store gets its name only after prepare has returned, and has the records of the backup and
// what prepare committed.
func TestRestore(t *testing.T) {
	file, dir := backupFile(t), filepath.Join(t.TempDir(), "not", "there yet")
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
	if names := fileNames(t, dir); names != fileName {
		t.Errorf("files: %s, want %s", names, fileName)
	}
	want, err := OpenReadOnly(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = want.Close() }()
	err = mustOpen(t, dir).View(func(r store.Reader) error {
		if got := r.Get(store.Meta, []byte(store.MetaClock)); len(got) == 0 {
			t.Error("the restored store does not have the record that prepare committed")
		}
		return want.View(func(old store.Reader) error {
			return old.Scan(store.Spec, nil, nil, func(key, value []byte) bool {
				if !bytes.Equal(r.Get(store.Spec, key), value) {
					t.Errorf("record %x differs from that in the backup", key)
				}
				return true
			})
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// A Restore that fails leaves nothing that it has made: because prepare fails, because the backup
// is damaged, missing or of a newer format, because it cannot be read to its end, or because a
// directory cannot be made. A directory that was there before stays.
func TestRestoreThatFailsLeavesNothing(t *testing.T) {
	no := errors.New("no")
	whole, existing := backupFile(t), t.TempDir()
	cut := filepath.Join(t.TempDir(), "cut")
	content, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cut, content[:len(content)-5000], 0o600); err != nil {
		t.Fatal(err)
	}
	newer, unreadable, missing := filepath.Join(newerStore(t), fileName), t.TempDir(), filepath.Join(existing, "nowhere")
	for _, dir := range []string{existing, filepath.Join(existing, "new"), filepath.Join(existing, "parent", "new")} {
		if err := Restore(whole, dir, Options{}, func(*Store) error { return no }); !errors.Is(err, no) {
			t.Errorf("Restore = %v, want the error of prepare", err)
		}
		if err := Restore(cut, dir, Options{}, noCheck); !errors.As(err, new(*store.DamagedError)) {
			t.Errorf("Restore of a file that was cut off = %v, want a DamagedError", err)
		}
		if err := Restore(newer, dir, Options{}, noCheck); !errors.As(err, new(*store.NewerFormatError)) {
			t.Errorf("Restore of a store of a newer format = %v, want a NewerFormatError", err)
		}
		if err := Restore(unreadable, dir, Options{}, noCheck); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("Restore of a directory = %v, want the error of the read, EISDIR", err)
		}
		failed := new(fs.PathError)
		if err := Restore(missing, dir, Options{}, noCheck); !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &failed) || failed.Path != missing {
			t.Errorf("Restore of a file that does not exist = %v, want fs.ErrNotExist of %s", err, missing)
		}
		if err := Restore(whole, filepath.Join(dir, strings.Repeat("n", 300)), Options{}, noCheck); !errors.Is(err, syscall.ENAMETOOLONG) {
			t.Errorf("Restore into a directory with a name of 300 bytes = %v, want ENAMETOOLONG", err)
		}
		if names := fileNames(t, existing); names != "" {
			t.Errorf("Restore into %s left: %s, want nothing", dir, names)
		}
	}
}

// Restore refuses a directory that has a store, and does not change that store.
func TestRestoreWantsAnEmptyDirectory(t *testing.T) {
	file, dir := backupFile(t), filledStore(t)
	before := readFile(t, dir)
	full := new(store.NotEmptyError)
	if err := Restore(file, dir, Options{}, noCheck); !errors.As(err, &full) || full.Dir != dir || full.Name != fileName {
		t.Errorf("Restore = %v, want a NotEmptyError that names the store", err)
	}
	if !bytes.Equal(before, readFile(t, dir)) {
		t.Error("Restore changed the store in the directory")
	}
}

// Restore refuses a directory that has any other file, and does so before it calls prepare.
func TestRestoreWantsNoOtherFile(t *testing.T) {
	file, dir := backupFile(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Restore(file, dir, Options{}, func(*Store) error { t.Error("Restore called prepare"); return nil })
	if full := new(store.NotEmptyError); !errors.As(err, &full) || full.Name != "other" {
		t.Errorf("Restore = %v, want a NotEmptyError that names the file", err)
	}
}

// Restore refuses to restore the copy that an interrupted restore into the same directory has left,
// and keeps it: it would overwrite what it reads.
func TestRestoreKeepsItsOwnSource(t *testing.T) {
	for _, link := range []bool{false, true} {
		dir := t.TempDir()
		file := filepath.Join(dir, restoringName)
		if err := os.Rename(backupFile(t), file); err != nil {
			t.Fatal(err)
		}
		from := file
		if link {
			from = filepath.Join(t.TempDir(), "backup")
			if err := os.Symlink(file, from); err != nil {
				t.Fatal(err)
			}
		}
		if err := Restore(from, dir, Options{}, noCheck); !errors.As(err, new(*store.NotEmptyError)) {
			t.Errorf("Restore = %v, want a NotEmptyError", err)
		}
		if st, err := OpenReadOnly(from, Options{}); err != nil {
			t.Errorf("the file can no longer be opened: %v", err)
		} else if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A backup of an older format is upgraded before prepare gets it.
func TestRestoreUpgrades(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, goldenStore(t, 4), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Restore(file, t.TempDir(), Options{Logger: slog.New(slog.DiscardHandler)}, func(s *Store) error {
		if have, err := store.Current().Check(s); err != nil || have != store.Current().Format() {
			t.Errorf("prepare gets a store of format %d (%v), want %d", have, err, store.Current().Format())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Restore does not write through a symbolic link that has the name of its unfinished file.
// Otherwise the owner of the directory could make root overwrite any file.
func TestRestoreWritesNothingThroughALink(t *testing.T) {
	file, dir, other := backupFile(t), t.TempDir(), filepath.Join(t.TempDir(), "other")
	err := errors.Join(os.WriteFile(other, []byte("kept"), 0o600), os.Symlink(other, filepath.Join(dir, restoringName)))
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(file, dir, Options{}, noCheck); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("Restore = %v, want ELOOP", err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
		t.Errorf("the file that the link leads to has %d bytes (%v), want the content %q", len(text), err, "kept")
	}
}

// If a start makes a store after Restore has found the directory empty, it does not serve that
// store: a Restore that has looked for the last time replaces it. A Restore that still looks does
// not replace it.
func TestRestoreReplacesNoStore(t *testing.T) {
	file, dir := backupFile(t), t.TempDir()
	var made []byte
	err := Restore(file, dir, Options{}, func(*Store) error {
		for _, name := range []string{"the first start", "another one"} {
			if err := createIfMissing(filepath.Join(dir, fileName), store.Current()); !errors.As(err, new(*store.UnfinishedError)) {
				t.Errorf("%s = %v, want an UnfinishedError", name, err)
			}
		}
		made = readFile(t, dir)
		return nil
	})
	if !errors.As(err, new(*store.NotEmptyError)) {
		t.Errorf("Restore = %v, want a NotEmptyError", err)
	}
	if names := fileNames(t, dir); names != fileName || !bytes.Equal(made, readFile(t, dir)) {
		t.Errorf("Restore changed the new store, or left a file; files: %s, want %s as it was", names, fileName)
	}
}

// A restore that was killed leaves a file under the name restoringName. Because of that file Open,
// OpenReadOnly and Compact refuse the directory, so that Open does not make an empty store there.
// Restore can be repeated.
func TestKilledRestoreMakesOpenFail(t *testing.T) {
	file, dir := backupFile(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, restoringName), make([]byte, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"Open":         func() error { _, err := Open(dir, Options{}); return err },
		"OpenReadOnly": func() error { _, err := OpenReadOnly(dir, Options{}); return err },
		"Compact":      func() error { _, _, err := Compact(dir, Options{}, noCheck); return err },
	} {
		if err := open(); !errors.As(err, new(*store.UnfinishedError)) {
			t.Errorf("%s = %v, want an UnfinishedError", what, err)
		}
	}
	if names := fileNames(t, dir); names != restoringName {
		t.Errorf("files: %s, want %s", names, restoringName)
	}
	if err := Restore(file, dir, Options{}, noCheck); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

// While a restore into a directory runs, a second one is refused and does not disturb the first.
func TestSecondRestoreIsRefused(t *testing.T) {
	file, dir := backupFile(t), t.TempDir()
	err := Restore(file, dir, Options{}, func(*Store) error {
		if err := Restore(file, dir, Options{}, noCheck); !errors.As(err, new(*store.InUseError)) {
			t.Errorf("the second Restore = %v, want an InUseError", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

// OpenReadOnly does not change the store, refuses commits, and makes no store in an empty
// directory. Several readers may open it at the same time, but Open is refused meanwhile.
func TestOpenReadOnlyChangesNothing(t *testing.T) {
	dir := filledStore(t)
	before := readFile(t, dir)
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
	if names := fileNames(t, dir); names != fileName || !bytes.Equal(before, readFile(t, dir)) {
		t.Errorf("files: %s, want %s as it was", names, fileName)
	}
	if _, err := OpenReadOnly(t.TempDir(), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("OpenReadOnly of an empty directory = %v, want fs.ErrNotExist", err)
	}
}
