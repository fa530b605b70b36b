package diskroom

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A writer leaves free what it keeps free. What is small is written even to a nearly full disk.
func TestWriterLeavesRoom(t *testing.T) {
	const piece = 64 << 10
	for _, tt := range []struct{ disk, written int64 }{
		{0, always},
		{kept, always},
		{kept + always - 1, always},
		{kept + always, always + interval},
		{kept + always + 3*interval, always + 4*interval},
	} {
		w := NewWriter(newFile(t))
		w.free = func() (int64, error) { return tt.disk - w.written, nil }
		var err error
		for err == nil && w.written < 2*always {
			_, err = w.Write(make([]byte, piece))
		}
		var full *FullError
		if !errors.As(err, &full) || full.Written != tt.written-piece {
			t.Errorf("with %d bytes free: error %v, want that there is no room after %d bytes", tt.disk, err, tt.written-piece)
		}
	}
}

// Nobody is told that a disk is full because its free space cannot be found out.
func TestUnknownRoom(t *testing.T) {
	w := NewWriter(newFile(t))
	w.free = func() (int64, error) { return 0, os.ErrInvalid }
	if _, err := w.Write(make([]byte, always)); err != nil {
		t.Error(err)
	}
}

// The free space is that of the file's disk.
func TestFreeSpace(t *testing.T) {
	if bytes, err := free(newFile(t)); err != nil || bytes <= 0 {
		t.Errorf("%d bytes, %v; want a number", bytes, err)
	}
}

func newFile(t *testing.T) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
