package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// flush makes the data of a file durable, as bbolt does.
func flush(file *os.File) error { return unix.Fdatasync(int(file.Fd())) }
