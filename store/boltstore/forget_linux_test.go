package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// If a start cannot flush the writes of an earlier process, it removes the mark: after a failed
// flush, the kernel may have pages in memory that are not on the disk, so the next start must check
// the store before it serves.
func TestFailedFlushAtTheStartRemovesTheMark(t *testing.T) {
	dir := markedStore(t)
	file, err := os.OpenFile(filepath.Join(dir, fileName), unix.O_PATH, 0) // stat works on such a file, sync does not
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := new(opening).check(file); !errors.Is(err, unix.EBADF) {
		t.Errorf("check = %v, want EBADF", err)
	}
	if hasMark(dir) {
		t.Error("the store has a mark after the failed flush, want none")
	}
}
