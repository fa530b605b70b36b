package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file gets its name also if the file system has no links. It does not replace a file that was
// made meanwhile, unless that is allowed.
func TestPendingFileWithoutLinks(t *testing.T) {
	for _, c := range []struct {
		name         string
		force, taken bool
		want         string
	}{
		{"free", false, false, "new"},
		{"taken meanwhile", false, true, "old"},
		{"taken, may be replaced", true, true, "new"},
	} {
		dir := t.TempDir()
		name := filepath.Join(dir, "file")
		u, err := newPendingFile(name, c.force, secret)
		if err != nil {
			t.Fatal(err)
		}
		u.link = func(string, string) error { return syscall.EPERM }
		if c.taken {
			if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := u.Write([]byte("new")); err != nil {
			t.Fatal(err)
		}
		if err := u.keep(); (err != nil) != (c.want == "old") {
			t.Errorf("%s: keep = %v, want an error: %t", c.name, err, c.want == "old")
		}
		if err := u.discard(); err != nil {
			t.Errorf("%s: discard = %v, want nil", c.name, err)
		}
		got, err := os.ReadFile(name)
		files, err2 := os.ReadDir(dir)
		if errors.Join(err, err2) != nil || string(got) != c.want || len(files) != 1 {
			t.Errorf("%s: the file has %q (%v), want %q; files %v", c.name, got, errors.Join(err, err2), c.want, files)
		}
	}
}

// If the directory of a file cannot be flushed, the file has its name already: the error does not
// say that nothing was changed.
func TestPendingFileWhoseDirectoryCannotBeFlushed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	u, err := newPendingFile(name, false, secret)
	if err != nil {
		t.Fatal(err)
	}
	u.sync = func(string) error { return syscall.EIO }
	f := explain(u.keep())
	if _, err := os.Stat(name); err != nil || f.code != exitCannotStart || !strings.HasPrefix(f.hint, "the file is complete") {
		t.Errorf("keep = %d, %q, hint %q; the file: %v; want exit code %d, a hint that the file is complete, and the file", f.code, f.text, f.hint, err, exitCannotStart)
	}
	if err := u.discard(); err != nil {
		t.Error(err)
	}
}
