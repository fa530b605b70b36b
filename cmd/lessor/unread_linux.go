package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// unreadBytes returns how many bytes can be read from a file, a pipe or a socket without waiting.
func unreadBytes(f *os.File) int {
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
