package execworker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newCapture(t *testing.T, limit int) *capture {
	return &capture{spool: OwnSpool(filepath.Join(t.TempDir(), "spool")), name: SpoolName("t1", 2), limit: limit}
}

func TestCaptureKeepsSmallOutputInMemory(t *testing.T) {
	c := newCapture(t, 8)
	write(t, c, "1234", "5678")
	if !c.inline() || c.memory.String() != "12345678" {
		t.Errorf("inline %v with %q in memory, want true with all of 12345678", c.inline(), c.memory.String())
	}
	if _, err := os.Stat(c.spool.dir); !os.IsNotExist(err) {
		t.Errorf("the spool was made although the output fits into memory (stat: %v)", err)
	}
}

func TestCaptureWritesAllOfALargeOutputToTheSpool(t *testing.T) {
	c := newCapture(t, 8)
	if err := c.spool.Check(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.spool.Path(c.name+partial), []byte("of a process that died"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, c, "1234", "56789", "ab")
	if c.inline() {
		t.Fatal("11 bytes are inline at a limit of 8")
	}
	if err := c.keep(); err != nil {
		t.Fatal(err)
	}
	c.discard() // every attempt ends with it; it must not remove the kept file
	got, err := os.ReadFile(c.spool.Path("t1.2"))
	if err != nil || string(got) != "123456789ab" || c.size != 11 {
		t.Errorf("the kept file has %q, size %d, %v; want all 11 bytes", got, c.size, err)
	}
}

// An output is as secret as the payload from which it was made.
func TestOutputIsPrivate(t *testing.T) {
	c := newCapture(t, 1)
	write(t, c, "1234")
	if err := c.keep(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{c.spool.dir: 0o700, c.spool.Path(c.name): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v, %v; want that only its owner may read %s", info, err, name)
		}
	}
}

func TestCaptureLeavesNothingBehindUnlessKept(t *testing.T) {
	c := newCapture(t, 1)
	write(t, c, "1234")
	c.discard()
	if left, _ := os.ReadDir(c.spool.dir); len(left) > 0 {
		t.Errorf("the spool has %v, want no file", left)
	}
}

func TestCaptureFailsIfTheSpoolFails(t *testing.T) {
	c := newCapture(t, 1)
	// a file where the directory should be, so that nothing can be created in it
	if err := os.WriteFile(c.spool.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("1234")); err == nil || !strings.Contains(err.Error(), "spooling the output") {
		t.Errorf("Write = %v, want an error with %q", err, "spooling the output")
	}
}

func TestSpoolNameHasNoSeparator(t *testing.T) {
	if name := SpoolName("../../etc/passwd", 1); strings.ContainsRune(name, filepath.Separator) {
		t.Errorf("SpoolName of a task id with separators = %q, want none in it", name)
	}
}

// A file that does not exist counts as removed; one that cannot be removed is an error.
func TestSpoolRemoves(t *testing.T) {
	s := NewSpool(t.TempDir())
	if err := errors.Join(os.WriteFile(s.Path("file"), nil, 0o600), os.MkdirAll(s.Path("directory/x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Remove("file"); err != nil {
			t.Error(err)
		}
	}
	if files, _ := os.ReadDir(s.dir); len(files) != 1 || s.Remove("directory") == nil {
		t.Errorf("the spool has %v, want only the directory, whose removal fails", files)
	}
}

// A worker that cannot write to its spool learns it from Check: if the directory cannot be made,
// and if no file can be made in it. Check leaves no file.
func TestCheckOfASpool(t *testing.T) {
	dir := t.TempDir()
	if err := NewSpool(filepath.Join(dir, "a", "b")).Check(); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(filepath.Join(dir, "a", "b")); err != nil || len(files) > 0 {
		t.Errorf("the spool has %v (%v), want no file", files, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := NewSpool(filepath.Join(file, "spool")).Check(); err == nil {
		t.Error("a spool below a file is accepted")
	}
	if _, err := os.Stat("/proc/self"); err == nil && NewSpool("/proc/self").Check() == nil {
		t.Error("a directory in which no file can be made is accepted")
	}
}

// The name of the directory does not matter, even if it looks like a pattern.
func TestCleanRemovesUnfinishedFiles(t *testing.T) {
	c := newCapture(t, 1)
	c.spool.dir += "[1"
	write(t, c, "killed while writing")
	other := newCapture(t, 1)
	other.spool, other.name = c.spool, "t2.1"
	write(t, other, "this one too")
	kept := newCapture(t, 1)
	kept.spool, kept.name = c.spool, "t1.1"
	write(t, kept, "kept")
	if err := kept.keep(); err != nil {
		t.Fatal(err)
	}
	if err := c.spool.Clean(); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(c.spool.dir)
	if len(left) != 1 || left[0].Name() != "t1.1" {
		t.Errorf("the spool has %v, want only the kept file t1.1", left)
	}
}

func write(t *testing.T, c *capture, pieces ...string) {
	t.Helper()
	for _, p := range pieces {
		if _, err := c.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
}
