//go:build linux || darwin

package machine

import "syscall"

// diskPct returns how full the disk is for an ordinary user, in percent. The part of the disk that
// is reserved for root does not count.
func diskPct(at string) (pct float64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(at, &st); err != nil {
		return 0, false
	}
	return diskUse(float64(st.Blocks), float64(st.Bfree), float64(st.Bavail))
}

// diskUse returns how full a disk is, from the numbers of its blocks: all, the free ones, and those
// available to an ordinary user. ok is false if it has none.
func diskUse(blocks, free, available float64) (pct float64, ok bool) {
	used := blocks - free
	if whole := used + available; whole > 0 {
		return percent(used, whole), true
	}
	return 0, false
}
