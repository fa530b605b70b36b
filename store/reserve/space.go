package reserve

import "syscall"

// diskFree is the number of bytes that processes other than those of root may still write to the disk of dir.
func diskFree(dir string) (int64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return int64(float64(s.Bavail) * float64(s.Bsize)), err // the types of both differ from system to system
}
