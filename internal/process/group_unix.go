//go:build unix && !linux

package process

import "syscall"

// ownGroup makes a program the leader of its own process group, in a session of its own that has no
// terminal. Only Linux can also kill the program when this process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true}
}

// runs reports whether a process of the group may still run. Only Linux can tell processes that
// have exited from those that run.
func (g *Group) runs() bool { return true }
