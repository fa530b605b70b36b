package reserve

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const size = 1 << 20

// disk is a Reserve on a disk with as much space as the test says.
type disk struct {
	*Reserve
	log   bytes.Buffer
	space int64 // free bytes on the disk, those that the file of the reserve takes included
}

func open(t *testing.T, space int64) *disk {
	t.Helper()
	d := &disk{space: space}
	dir := t.TempDir()
	d.Reserve = &Reserve{path: filepath.Join(dir, fileName), size: size, log: slog.New(slog.NewTextHandler(&d.log, nil))}
	d.freeBytes = func(string) (int64, error) {
		if info, err := os.Stat(d.path); err == nil {
			return d.space - info.Size(), nil
		}
		return d.space, nil
	}
	d.Check()
	return d
}

// wantFull sets the space and checks what Full reports then, and whether the file of the reserve exists.
func (d *disk) wantFull(t *testing.T, space int64, full, held bool) {
	t.Helper()
	d.space = space
	time.Sleep(maxAge)
	if got := d.Full(); got != full {
		t.Errorf("with %d bytes of space: Full = %v, want %v", space, got, full)
	}
	if _, err := os.Stat(d.path); (err == nil) != held {
		t.Errorf("with %d bytes of space: stat of the file of the reserve = %v, want that it exists: %v", space, err, held)
	}
}

// When a disk fills up, Full becomes true when the free space is less than the size of the reserve's file. The file is removed when the free space is less
// than a quarter of its size, and made again when the disk has room for it twice. Full becomes false only when the free space is a quarter more than the
// size of the file, so that it does not switch back and forth.
func TestDiskFillsAndEmpties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		d.wantFull(t, 10*size, false, true)
		d.wantFull(t, 2*size, false, true)
		d.wantFull(t, 2*size-1, true, true)
		d.wantFull(t, 2*size, true, true) // still full: the free space must be a quarter more
		d.wantFull(t, 2*size+size/4, false, true)
		d.wantFull(t, size+size/4, true, true)
		d.wantFull(t, size+size/4-1, true, false)
		d.wantFull(t, 2*size-1, true, false)
		d.wantFull(t, 2*size, true, true)
		d.wantFull(t, 3*size, false, true)
		for _, want := range []string{"new tasks are refused", "is released", "has room again"} {
			if !strings.Contains(d.log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, &d.log)
			}
		}
	})
}

// On a disk without room for the reserve, Full is true from the start and no file is made.
func TestDiskWithoutRoomIsFullFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 2*size-1)
		d.wantFull(t, 2*size-1, true, false)
	})
}

// If the configured size of the reserve changes, Open makes a new file of that size. A larger file would take space that nobody asked for.
func TestOpenChangesTheSizeOfTheFile(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []int64{2 * size, size, 3 * size} {
		Open(dir, n, slog.New(slog.DiscardHandler))
		if info, err := os.Stat(filepath.Join(dir, fileName)); err != nil || info.Size() != n {
			t.Errorf("opened with a size of %d: stat = %v, %v", n, info, err)
		}
	}
}

// Open takes over the file of the reserve that an earlier process made. Release removes the file, and returns no error if there is none.
func TestOpenAndRelease(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if r := Open(dir, size, slog.New(slog.DiscardHandler)); r.Full() || !r.reserved {
			t.Errorf("full is %v and reserved is %v, want false and true", r.full, r.reserved)
		}
	}
	for range 2 {
		if err := Release(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err == nil {
		t.Error("the file of the reserve exists after Release")
	}
}
