package process

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Group is the process group that a program leads.
type Group struct {
	id     int
	leader *os.Process
	exited chan struct{} // closed when the program itself has exited
}

// Poll is how often to ask whether a process group has ended: no event tells that.
const Poll = 20 * time.Millisecond

// Signal sends s to all processes of the group. It returns false if none is left: they have just
// ended, even if Exited is not closed yet.
func (g *Group) Signal(s syscall.Signal) (sent bool) {
	return !errors.Is(syscall.Kill(-g.id, s), syscall.ESRCH)
}

// SignalLeader sends s to the program alone, and not to the processes that it has started. It
// returns false if the program has ended.
func (g *Group) SignalLeader(s syscall.Signal) (sent bool) {
	return !errors.Is(g.leader.Signal(s), os.ErrProcessDone)
}

// Exited is closed when the program itself has exited. Other processes of its group may still run.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// Ended reports whether the program has exited and no other process of its group runs.
func (g *Group) Ended() bool {
	select {
	case <-g.exited:
		return !g.Signal(0) || !g.runs()
	default:
		return false
	}
}

// reap waits for the processes of the group that have become children of this process. That happens
// only if this process is the first one of a container: it inherits what the program leaves, and
// each of these would keep its process id for as long as this process runs.
func (g *Group) reap() {
	for {
		if _, err := syscall.Wait4(-g.id, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return // ECHILD: no more of them
		}
	}
}
