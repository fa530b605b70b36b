//go:build !linux

package reserve

import (
	"errors"
	"io"
	"os"
)

// allocate takes that many bytes of the disk for a file, by writing them: there is no other way that all systems have. Where there is no room for all of
// them, it takes none.
func allocate(file *os.File, size int64) error {
	_, err := io.CopyN(file, zeros{}, size)
	if err != nil {
		err = errors.Join(err, file.Truncate(0))
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
