package bench

import "syscall"

// diesWithParent makes the kernel kill a child process when its parent dies.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
