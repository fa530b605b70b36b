package boltstore

import (
	"os"

	"golang.org/x/sys/unix"
)

// forgetPages removes the pages of a file from the page cache, so that the next reads come from the
// disk: after a failed flush, Linux regards pages as written that are not. The caller has just
// flushed the file.
func forgetPages(file *os.File) { _ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) }
