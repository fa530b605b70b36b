//go:build unix && !linux

package execworker

import "syscall"

// ownGroup makes a command the leader of its own process group, in a session of its own that has no terminal. Only Linux can also kill the command when
// the worker dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// runs reports whether a process of the group may still run. Only Linux can tell processes that have exited from those that run.
func (g *group) runs() bool { return true }
