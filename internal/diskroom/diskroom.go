// Package diskroom keeps what has no end, such as the output of a program that runs wild, from
// filling a disk for everybody.
package diskroom

import (
	"fmt"
	"os"
	"syscall"
)

const (
	// kept is how many bytes a Writer leaves free on its disk.
	kept = 64 << 20
	// always is how many bytes a Writer writes without looking at the free space: so much fits on
	// any disk, or the write fails.
	always = 16 << 20
	// interval is how many bytes it writes beyond that before it looks again. Many may write to the
	// same disk at once.
	interval = 1 << 20
)

// FullError means that a disk is nearly full.
type FullError struct{ Written int64 } // bytes, before there was no room for more

func (e *FullError) Error() string {
	return fmt.Sprintf("no room: after %d MiB of it, less than %d MiB of the disk are free", e.Written>>20, kept>>20)
}

// Writer writes to a file. It fails with a *FullError when the disk of the file is nearly full,
// unless it has written only little.
type Writer struct {
	file    *os.File
	free    func() (int64, error)
	written int64
}

// NewWriter returns a writer to f.
func NewWriter(f *os.File) *Writer {
	return &Writer{file: f, free: func() (int64, error) { return free(f) }}
}

// Write writes p to the file.
func (w *Writer) Write(p []byte) (int, error) {
	before := w.written
	w.written += int64(len(p))
	if w.written >= always && before/interval != w.written/interval {
		if free, err := w.free(); err == nil && free < kept {
			return 0, &FullError{Written: before}
		}
	}
	return w.file.Write(p)
}

// free returns how many bytes processes other than those of root may still write to the disk of a
// file.
func free(f *os.File) (int64, error) {
	var s syscall.Statfs_t
	err := syscall.Fstatfs(int(f.Fd()), &s)
	return int64(float64(s.Bavail) * float64(s.Bsize)), err // the types of both differ from system to system
}
