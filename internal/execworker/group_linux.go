package execworker

import "syscall"

// ownGroup starts a command as the leader of a process group, to be killed when the worker dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
