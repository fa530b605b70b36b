//go:build unix

package durable

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// A file that could be written only in part, as on a full disk, does not replace the file before
// it, and is not left.
func TestWriteFileOfWhichAPartFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := WriteFile(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ) // comes with a write beyond the limit
	defer signal.Reset(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	small := before
	small.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	failure := WriteFile(path, []byte("second"))
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); failure == nil || err != nil || string(text) != "first" {
		t.Errorf("WriteFile = %v, and the file has %q (%v); want an error and the text before", failure, text, err)
	}
	if _, err := os.Stat(path + ".new"); !os.IsNotExist(err) {
		t.Errorf("the file that was written in part was left (stat: %v)", err)
	}
}
