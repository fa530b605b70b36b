package boltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lessor-dev/lessor/store"
)

// readOnly returns another name of a directory, by which nobody can write to it.
func readOnly(t *testing.T, dir string) (mounted string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can mount a directory")
	}
	mounted = t.TempDir()
	if err := unix.Mount(dir, mounted, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("SKIPPED: not permitted to mount a directory: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil { // a page of the store may still be mapped
			t.Error(err)
		}
	})
	if err := unix.Mount("", mounted, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return mounted
}

// CompactTo copies a store from a file system that cannot be written, where Compact fails. There,
// too, it refuses a store that another process has open, and the store of a standby.
func TestCompactToFromAReadOnlyFileSystem(t *testing.T) {
	dir := mostlyFreeStore(t)
	was := readFile(t, dir)
	mounted, sound := readOnly(t, dir), func(*Store) error { return nil }
	opts := Options{LockTimeout: time.Millisecond}
	if _, _, err := Compact(mounted, opts, sound); !errors.Is(err, unix.EROFS) {
		t.Errorf("Compact = %v, want %v", err, unix.EROFS)
	}
	target := filepath.Join(t.TempDir(), "copy")
	before, after, err := CompactTo(mounted, target, opts, func(*Store) error {
		if _, err := Open(dir, opts); !errors.As(err, new(*store.InUseError)) {
			t.Errorf("Open of the store = %v, want an InUseError", err)
		}
		return nil
	})
	if err != nil || before != int64(len(was)) || after > before/2 {
		t.Errorf("CompactTo = %d, %d, %v; want %d, at most half of that, and no error", before, after, err, len(was))
	}
	if !bytes.Equal(was, readFile(t, dir)) {
		t.Error("the store has changed")
	}
	commitSome(t, mustOpen(t, target), 1, 1)

	served := mustOpen(t, dir)
	if _, _, err := CompactTo(mounted, filepath.Join(t.TempDir(), "copy"), opts, sound); !errors.As(err, new(*store.InUseError)) {
		t.Errorf("CompactTo of a store that is open = %v, want an InUseError", err)
	}
	if err := errors.Join(served.Close(), os.WriteFile(filepath.Join(dir, standbyName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := CompactTo(mounted, filepath.Join(t.TempDir(), "copy"), opts, sound); !errors.As(err, new(*store.StandbyError)) {
		t.Errorf("CompactTo of the store of a standby = %v, want a StandbyError", err)
	}
}
