//go:build unix && !linux

package execworker

import "syscall"

// ownGroup starts a command as the leader of a process group. Only Linux can also tie its life to the worker's.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
