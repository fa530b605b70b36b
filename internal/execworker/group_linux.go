package execworker

import "syscall"

// ownGroup makes a command the leader of its own process group. The kernel kills the command when the worker dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
