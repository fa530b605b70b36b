package reserve

import (
	"errors"
	"os"
	"syscall"
)

// allocate takes that many bytes of the disk for a file. Where the file system cannot, what counts is what is left.
func allocate(file *os.File, size int64) error {
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, size); !errors.Is(err, syscall.EOPNOTSUPP) {
		return err
	}
	return nil
}
