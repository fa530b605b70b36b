package execworker

import (
	"errors"
	"syscall"
	"time"
)

// group is the process group that a command leads.
type group struct {
	id     int
	exited chan struct{} // closed when the command itself has exited
}

// groupPoll is how often to look whether a process group has ended: no event tells that.
const groupPoll = 20 * time.Millisecond

// signal sends s to all processes of the group. It returns false if none is left: they have just ended, even if exited is not closed yet.
func (g *group) signal(s syscall.Signal) (sent bool) {
	return !errors.Is(syscall.Kill(-g.id, s), syscall.ESRCH)
}

// ended reports whether the command has exited and no other process of its group runs.
func (g *group) ended() bool {
	return closed(g.exited) && (!g.signal(0) || !g.runs())
}

// reap waits for the processes of the group that have become children of the worker. That happens only if the worker is the first process of a container:
// it inherits what the command leaves, and each of these would keep its process id for as long as the worker runs.
func (g *group) reap() {
	for {
		if _, err := syscall.Wait4(-g.id, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return // ECHILD: no more of them
		}
	}
}
