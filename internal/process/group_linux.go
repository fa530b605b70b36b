package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownGroup makes a program the leader of its own process group. The kernel kills the program when
// this process dies.
//
// The group is in a session of its own, which has no terminal. In the session of this process it
// would be in the background, and the kernel would stop a program that asks for a password, say,
// until somebody continues it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// runs reports whether a process of the group has not exited. A process that has exited stays in
// its group until its parent asks for its exit code. Nobody asks in many containers, once the
// program, which was its parent, has exited.
func (g *Group) runs() bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		// See proc_pid_stat(5): after the name, which is in parentheses and may contain anything,
		// come state, parent and group.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(g.id) && string(fields[0]) != "Z" &&
			string(fields[0]) != "X" {
			return true
		}
	}
	return len(stats) == 0 // without /proc, it may run
}
