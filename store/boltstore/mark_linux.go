package boltstore

import (
	"bytes"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// markFor returns the mark that is good for file now. ok is false if the file system does not
// record when a file was created.
func markFor(file *os.File) (m mark, ok bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(bytes.TrimSpace(boot)) == 0 {
		return mark{}, false
	}
	const want = unix.STATX_INO | unix.STATX_BTIME
	var s unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, want, &s); err != nil || s.Mask&want != want {
		return mark{}, false
	}
	return mark{
		Boot:   string(bytes.TrimSpace(boot)),
		Device: unix.Mkdev(s.Dev_major, s.Dev_minor),
		Inode:  s.Ino,
		Born:   time.Unix(s.Btime.Sec, int64(s.Btime.Nsec)).UnixNano(),
	}, true
}
