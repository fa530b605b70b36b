package reserve

import "syscall"

// diskFree is how many bytes processes that are not root may still write to the disk of dir.
func diskFree(dir string) (int64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return int64(float64(s.Bavail) * float64(s.Bsize)), err // the types of both differ from system to system
}
