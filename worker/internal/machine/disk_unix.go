//go:build linux || darwin

package machine

import "syscall"

// diskPct is how full the disk is for an ordinary user, for whom a part is kept back.
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
