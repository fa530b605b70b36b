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

// disk is a directory on a disk with as much space as the test says; the reserve takes its part of that.
type disk struct {
	*Reserve
	log   bytes.Buffer
	space int64 // what others leave
}

func open(t *testing.T, space int64) *disk {
	t.Helper()
	d := &disk{space: space}
	dir := t.TempDir()
	d.Reserve = &Reserve{path: filepath.Join(dir, fileName), size: size, log: slog.New(slog.NewTextHandler(&d.log, nil))}
	d.free = func(string) (int64, error) {
		if info, err := os.Stat(d.path); err == nil {
			return d.space - info.Size(), nil
		}
		return d.space, nil
	}
	d.Check()
	return d
}

func (d *disk) want(t *testing.T, space int64, full, held bool) {
	t.Helper()
	d.space = space
	time.Sleep(recheck)
	if got := d.Full(); got != full {
		t.Errorf("%d bytes of space: full is %v", space, got)
	}
	if _, err := os.Stat(d.path); (err == nil) != held {
		t.Errorf("%d bytes of space: the file: %v", space, err)
	}
}

// A disk that fills up is full while the reserve is still whole; the reserve goes when little is left, and comes back with the room.
func TestDiskFillsAndEmpties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		d.want(t, 10*size, false, true)
		d.want(t, 2*size, false, true)
		d.want(t, 2*size-1, true, true)
		d.want(t, 2*size, true, true) // not before there is some more
		d.want(t, 2*size+size/4, false, true)
		d.want(t, size+size/4, true, true)
		d.want(t, size+size/4-1, true, false)
		d.want(t, 2*size-1, true, false)
		d.want(t, 2*size, true, true)
		d.want(t, 3*size, false, true)
		for _, want := range []string{"no tasks are taken in", "is given up", "has room again"} {
			if !strings.Contains(d.log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, &d.log)
			}
		}
	})
}

// A disk without room for the reserve is full from the start.
func TestNoRoomFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 2*size-1)
		d.want(t, 2*size-1, true, false)
	})
}

// A reserve of an earlier process is still there; Release gives it up, also where there is none.
func TestOpenAndRelease(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if r := Open(dir, size, slog.New(slog.DiscardHandler)); r.Full() || !r.held {
			t.Errorf("full is %v, held %v", r.full, r.held)
		}
	}
	for range 2 {
		if err := Release(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err == nil {
		t.Error("the file is still there")
	}
}
