//go:build linux || darwin

package machine

import "syscall"

// diskPct returns how full the disk is for an ordinary user, in percent. The part of the disk that is reserved for root does not count.
func diskPct(at string) (pct float64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(at, &st); err != nil {
		return 0, false
	}
	used := float64(st.Blocks) - float64(st.Bfree)
	if whole := used + float64(st.Bavail); whole > 0 {
		return percent(used, whole), true
	}
	return 0, false
}
