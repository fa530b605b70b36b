//go:build !linux

package main

import (
	"io"
	"os"
)

// unreadBytes returns how many bytes can be read from a file; 0: none, or it is a pipe, of which
// nobody knows.
func unreadBytes(f *os.File) int {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return int(max(info.Size()-at, 0))
}
