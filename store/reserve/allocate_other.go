//go:build !linux

package reserve

import (
	"errors"
	"io"
	"os"
)

// allocate allocates size bytes of disk space for a file by writing zeros, the only way that works
// on all systems. If there is not enough space, the file stays empty.
func allocate(file *os.File, size int64) error {
	_, err := io.CopyN(file, zeros{}, size)
	if err != nil {
		err = errors.Join(err, file.Truncate(0))
	}
	return err
}

// zeros is a reader of endless zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
