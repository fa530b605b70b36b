package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFileReplacesAndLeavesNothingElse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"first, longer", "second"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("the directory has %v, want only the file", all)
	}
}

func TestKeepNamesNothingThatWasNotWritten(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file.new"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Keep(f, filepath.Join(dir, "file")); err == nil {
		t.Error("a file that cannot be synced was kept")
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); !os.IsNotExist(err) {
		t.Errorf("the file was renamed although the sync failed (stat: %v)", err)
	}
}
