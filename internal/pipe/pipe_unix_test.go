//go:build unix

package pipe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func newPipe(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A writer may come after the reader, and write in parts.
func TestWriterComesLater(t *testing.T) {
	name := newPipe(t)
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(WriterWithin-time.Second, func() {
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			for _, part := range []string{"one ", "two"} {
				if _, err := f.WriteString(part); err != nil {
					t.Error(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		if text, err := ReadFile(name); string(text) != "one two" || err != nil {
			t.Errorf("read %q, %v; want both parts", text, err)
		}
	})
}

// A pipe into which nobody writes is an error that names the pipe, and does not hang the caller.
func TestNobodyWrites(t *testing.T) {
	name := newPipe(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		text, err := ReadFile(name)
		var at *fs.PathError
		if text != nil || !errors.Is(err, ErrNoWriter) || !errors.As(err, &at) || at.Path != name {
			t.Errorf("read %q, %v; want nothing and an error that names %s", text, err, name)
		}
		if took := time.Since(began); took != WriterWithin {
			t.Errorf("the error came after %v, want %v", took, WriterWithin)
		}
	})
}

// Any other file is read like everywhere else.
func TestOtherFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if _, err := ReadFile(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: error %v, want that it does not exist", err)
	}
	for _, want := range []string{"", "text"} {
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := ReadFile(name); string(text) != want || err != nil {
			t.Errorf("read %q, %v; want %q", text, err, want)
		}
	}
}

// A file may have MaxSize bytes, and no more. One without end is an error, and does not take all
// memory.
func TestLargeFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, MaxSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadFile(name); len(text) != MaxSize || err != nil {
		t.Errorf("read %d bytes, %v; want %d", len(text), err, MaxSize)
	}
	if err := os.Truncate(name, MaxSize+1); err != nil {
		t.Fatal(err)
	}
	for _, large := range []string{name, "/dev/zero"} {
		text, err := ReadFile(large)
		var at *fs.PathError
		if text != nil || !errors.Is(err, ErrTooLarge) || !errors.As(err, &at) || at.Path != large {
			t.Errorf("read %d bytes, %v; want nothing and an error that names %s", len(text), err, large)
		}
	}
}

// So it is with a pipe whose writer does not end.
func TestWriterWithoutEnd(t *testing.T) {
	name := newPipe(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = f.Close() }()
		for err == nil { // until the reader has closed it
			_, err = f.Write(make([]byte, 64<<10))
		}
	}()
	if text, err := ReadFile(name); text != nil || !errors.Is(err, ErrTooLarge) {
		t.Errorf("read %d bytes, %v; want nothing and %v", len(text), err, ErrTooLarge)
	}
	<-done
}
