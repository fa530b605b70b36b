// Package pipe reads files that may be pipes: the FIFO of another program, or a process substitution of the shell.
package pipe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// WriterWithin is how long a pipe may have no writer.
const WriterWithin = 3 * time.Second

// ErrNoWriter is the error for a pipe into which nobody writes.
var ErrNoWriter = fmt.Errorf("it is a pipe into which nobody has written within %v", WriterWithin)

// Is reports whether a file is a pipe, which gives its content only once.
func Is(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}

// ReadFile reads a whole file. Opened with os.ReadFile, a pipe that never gets a writer would hang the caller. The error is an *fs.PathError.
func ReadFile(name string) ([]byte, error) {
	if !Is(name) {
		return os.ReadFile(name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var text []byte
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		more, err := io.ReadAll(f) // waits while there is a writer, and ends at once while there is none
		text = append(text, more...)
		switch {
		case errors.Is(err, syscall.EAGAIN): // there is a writer; on macOS the read does not wait for it
			began = time.Now()
		case len(text) > 0 || err != nil:
			return text, err
		case time.Since(began) >= WriterWithin:
			return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNoWriter}
		}
	}
}
