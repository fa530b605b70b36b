// Package pipe reads small files that may be pipes: the FIFO of another program, or a process
// substitution of the shell.
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

const (
	// WriterWithin is how long a pipe may have no writer.
	WriterWithin = 3 * time.Second
	// MaxSize is the size, in bytes, up to which a file is read: settings, tokens and the
	// authorities of a system are smaller.
	MaxSize = 4 << 20
)

var (
	// ErrNoWriter is the error for a pipe into which nobody writes.
	ErrNoWriter = fmt.Errorf("it is a pipe into which nobody has written within %v", WriterWithin)
	// ErrTooLarge is the error for a file of more than MaxSize bytes.
	ErrTooLarge = fmt.Errorf("it is larger than the limit of %d MiB", MaxSize>>20)
)

// Is reports whether a file is a pipe, which gives its content only once.
func Is(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode()&fs.ModeNamedPipe != 0
}

// ReadFile reads a whole file of at most MaxSize bytes. Opened with os.ReadFile, a pipe that never
// gets a writer would hang the caller, and a file without end, such as /dev/zero, would take all
// memory. The error is an *fs.PathError.
func ReadFile(name string) ([]byte, error) {
	flags, isPipe := os.O_RDONLY, Is(name)
	if isPipe {
		flags |= syscall.O_NONBLOCK
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var text []byte
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		// for a pipe, waits while there is a writer, and ends at once while there is none
		more, err := io.ReadAll(io.LimitReader(f, int64(MaxSize+1-len(text))))
		text = append(text, more...)
		switch {
		case len(text) > MaxSize:
			return nil, &fs.PathError{Op: "read", Path: name, Err: ErrTooLarge}
		case !isPipe:
			return text, err
		case errors.Is(err, syscall.EAGAIN): // there is a writer; on macOS the read does not wait for it
			began = time.Now()
		case len(text) > 0 || err != nil:
			return text, err
		case time.Since(began) >= WriterWithin:
			return nil, &fs.PathError{Op: "read", Path: name, Err: ErrNoWriter}
		}
	}
}
