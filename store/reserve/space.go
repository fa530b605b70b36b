package reserve

import (
	"os"
	"syscall"
)

// Free returns the number of bytes that processes other than those of root may still write to the
// disk of dir.
func Free(dir string) (int64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return int64(float64(s.Bavail) * float64(s.Bsize)), err // the types of both differ from system to system
}

// allocated is the number of bytes that a file takes on the disk: less than its size if it has
// holes, as a copy made with rsync -S or cp --sparse=always has.
func allocated(info os.FileInfo) int64 {
	const block = 512
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * block
	}
	return info.Size()
}
