package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A start that cannot flush what an earlier process left takes the mark: the next one may find in memory what is not on the disk, and has to check it.
func TestFailedFlushAtTheStartTakesTheMark(t *testing.T) {
	dir := marking(t)
	file, err := os.OpenFile(filepath.Join(dir, fileName), unix.O_PATH, 0) // which can be looked at, and not flushed
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := new(opening).check(file); !errors.Is(err, unix.EBADF) {
		t.Errorf("check = %v, want EBADF", err)
	}
	if hasMark(dir) {
		t.Error("the mark is still there")
	}
}
