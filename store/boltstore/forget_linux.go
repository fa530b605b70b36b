package boltstore

import (
	"os"

	"golang.org/x/sys/unix"
)

// forgetPages has what is read next of a file come from its disk: after a failed flush, Linux takes pages for written that are not. The file was flushed just now.
func forgetPages(file *os.File) { _ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) }
