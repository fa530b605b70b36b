package execworker

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownGroup makes a command the leader of its own process group. The kernel kills the command when the worker dies.
//
// The group is in a session of its own, which has no terminal. In the session of the worker it would be in the background, and the kernel would stop
// a command that asks for a password, say, until somebody continues it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// runs reports whether a process of the group has not exited. A process that has exited stays in its group until its parent asks for its exit code. Nobody
// asks in many containers, once the command, which was its parent, has exited.
func (g *group) runs() bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		// See proc_pid_stat(5): after the name, which is in parentheses and may contain anything, come state, parent and group.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 2 && string(fields[2]) == strconv.Itoa(g.id) && string(fields[0]) != "Z" && string(fields[0]) != "X" {
			return true
		}
	}
	return len(stats) == 0 // without /proc, it may run
}
