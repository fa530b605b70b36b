package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFileReplacesAndLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path+".new", []byte("left by a process that died"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first, longer", "second"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Fatalf("the file has %q, %v; want %q", got, err, text)
		}
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("the directory has %v, want only the file", all)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want that only its owner may read the file", info, err)
	}
}

func TestKeepRemovesWhatItCannotSync(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file.new"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Keep(f, filepath.Join(dir, "file")); err == nil {
		t.Error("Keep of a file that cannot be synced = nil, want an error")
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); !os.IsNotExist(err) {
		t.Errorf("the file was renamed although the sync failed (stat: %v)", err)
	}
	if _, err := os.Stat(f.Name()); !os.IsNotExist(err) {
		t.Errorf("the file that could not be synced was left (stat: %v)", err)
	}
}

// /proc stands for file systems that cannot sync a directory.
func TestSyncDirIfTheFileSystemCannotSync(t *testing.T) {
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("the system has no /proc")
	}
	if err := SyncDir("/proc"); err != nil {
		t.Errorf("SyncDir = %v, want no error", err)
	}
	if err := SyncDir("/proc/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("SyncDir of a directory that does not exist = %v, want fs.ErrNotExist", err)
	}
}

func TestKeepReportsAFailedRename(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(path, "below"), 0o700); err != nil { // no file can replace it
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("text")); err == nil {
		t.Error("WriteFile = nil, want the error of the rename")
	}
	if _, err := os.Stat(path + ".new"); !os.IsNotExist(err) {
		t.Errorf("the file that could not be renamed was left (stat: %v)", err)
	}
}
