package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Disk is a small file system in a file, whose power can be cut.
type Disk struct {
	t      testing.TB
	fs     fileSystem
	device string
	dir    string
}

// fileSystem says how to make and mount the file system of a Disk.
type fileSystem struct {
	name  string
	mkfs  []string // the command that makes the file system in a file
	mount string   // options: nothing is written to the disk before a program asks for it
}

var (
	// by default it writes everything out after 5 s
	ext4 = fileSystem{"ext4", []string{"mkfs.ext4", "-q", "-F"}, "commit=1000,errors=remount-ro"}
	// by default it writes everything out after 30 s
	xfs = fileSystem{"xfs", []string{"mkfs.xfs", "-q", "-f"}, ""}
)

// NewDisk makes a disk of that size with ext4. It skips the test if that is not possible: it takes
// root and loop devices.
func NewDisk(t testing.TB, megabytes int64) *Disk {
	t.Helper()
	return newDisk(t, ext4, megabytes)
}

// NewXFS is like NewDisk, with XFS; mkfs.xfs needs at least 300 megabytes. It also skips the test
// if the kernel or the machine has no XFS.
func NewXFS(t testing.TB, megabytes int64) *Disk {
	t.Helper()
	if _, err := exec.LookPath(xfs.mkfs[0]); err != nil {
		t.Skipf("SKIPPED: no XFS: %v", err)
	}
	return newDisk(t, xfs, megabytes)
}

func newDisk(t testing.TB, fs fileSystem, megabytes int64) *Disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: only root can mount a disk")
	}
	tmp := t.TempDir()
	d := &Disk{t: t, fs: fs, dir: filepath.Join(tmp, "disk")}
	image := filepath.Join(tmp, "image")
	d.must(os.WriteFile(image, nil, 0o600))
	d.must(os.Truncate(image, megabytes<<20))
	d.must(os.Mkdir(d.dir, 0o700))
	d.run(fs.mkfs[0], append(fs.mkfs[1:], image)...)
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("SKIPPED: no loop device: %v: %s", err, out)
	}
	d.device = strings.TrimSpace(string(out))
	t.Cleanup(func() { d.run("losetup", "--detach", d.device) })
	switch err := d.mount(); {
	case errors.Is(err, syscall.EPERM):
		t.Skip("SKIPPED: not permitted to mount a disk")
	case errors.Is(err, syscall.ENODEV):
		t.Skipf("SKIPPED: the kernel has no %s", fs.name)
	default:
		d.must(err)
	}
	t.Cleanup(func() { d.must(d.unmount()) })
	return d
}

// Dir is where the disk is mounted.
func (d *Disk) Dir() string { return d.dir }

func (d *Disk) mount() error { return syscall.Mount(d.device, d.dir, d.fs.name, 0, d.fs.mount) }

// Cut cuts the power: what is not on the disk yet will never be, and every sync from now on fails.
func (d *Disk) Cut() {
	d.t.Helper()
	const (
		shutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN
		noLogFlush = 2
	)
	dir, err := os.Open(d.dir)
	d.must(err)
	how := uint32(noLogFlush)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), shutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		d.t.Fatal(fmt.Errorf("cut the power of %s: %w", d.dir, errno))
	}
	d.must(dir.Close())
}

// Fail makes the kernel believe that it found the disk's ext4 damaged: from now on the disk is
// read-only, also for processes that have files open.
func (d *Disk) Fail() {
	d.t.Helper()
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("a test"), 0); err != nil {
		d.t.Skipf("SKIPPED: not permitted to fail a disk: %v", err)
	}
}

// Restore brings the power back, after all processes that used the disk have ended. Only what was
// on the disk is there then. It removes the files lessor.db.checked: they belong to one boot of the
// machine, and a machine that lost its power would have booted again.
func (d *Disk) Restore() {
	d.t.Helper()
	d.must(d.unmount())
	d.must(d.mount())
	marks, err := filepath.Glob(filepath.Join(d.dir, "*", "lessor.db.checked"))
	d.must(err)
	for _, mark := range marks {
		d.must(os.Remove(mark))
	}
}

// unmount retries while the kernel still closes the files of an ended process. It waits until the
// file system is gone: one that somebody else's mount namespace has a copy of, such as that of ip
// netns exec or of a browser, lives on, and the next mount would find it without power.
func (d *Disk) unmount() (err error) {
	unmounted := false
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !unmounted {
			err = syscall.Unmount(d.dir, 0)
			unmounted = err == nil
		}
		if unmounted {
			err = d.unused()
		}
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	return err
}

// unused returns EBUSY if the device is mounted anywhere, in whatever namespace.
func (d *Disk) unused() error {
	device, err := os.OpenFile(d.device, os.O_RDONLY|syscall.O_EXCL, 0)
	if err != nil {
		return err
	}
	return device.Close()
}

// Free returns how many bytes may still be written.
func (d *Disk) Free() int64 {
	d.t.Helper()
	var s syscall.Statfs_t
	d.must(syscall.Statfs(d.dir, &s))
	return int64(s.Bavail) * s.Bsize
}

// Fill leaves only so many bytes free: a file of that name takes the rest. Removing the file gives
// them back.
func (d *Disk) Fill(name string, left int64) string {
	d.t.Helper()
	file, err := os.OpenFile(filepath.Join(d.dir, name), os.O_CREATE|os.O_WRONLY, 0o600)
	d.must(err)
	d.must(syscall.Fallocate(int(file.Fd()), 0, 0, d.Free()-left))
	d.must(file.Close())
	return file.Name()
}

func (d *Disk) run(name string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

func (d *Disk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}
