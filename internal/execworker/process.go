package execworker

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const pipeDelay = time.Second

// process is one run of a command.
type process struct {
	args   Command
	env    []string
	stdin  []byte // empty: the command has no input
	stdout io.Writer
	stderr io.Writer
	// pipeDelay is how long to wait for the end of the output. A process that left the group may still hold the pipe open.
	pipeDelay time.Duration
	// stops signals the command when it has to stop. It runs in its own goroutine, and must return once the command has exited and nothing that
	// stops has to wait for is left.
	stops func(*group)
}

// run starts the command and waits for its end. The error is about the start, or about reading the output. The state says how the command ended;
// it is nil if the command did not start.
func (p *process) run() (*os.ProcessState, error) {
	// The kernel sends Pdeathsig when the thread that started the command ends, even if the process lives on. So the thread must not end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Env = p.env
	cmd.SysProcAttr = ownGroup()
	pipes, err := p.connect(cmd)
	if err != nil {
		return nil, startFailure(p.args[0], err)
	}
	err = cmd.Start()
	pipes.started()
	if err != nil {
		_ = pipes.wait(p.pipeDelay) // the error of the start is more important
		return nil, startFailure(p.args[0], err)
	}
	p.await(cmd)
	return cmd.ProcessState, pipes.wait(p.pipeDelay)
}

// await waits for the end of the command, while stops may signal it. Then it kills the processes that are left in the command's group.
func (p *process) await(cmd *exec.Cmd) {
	g := &group{id: cmd.Process.Pid, exited: make(chan struct{})}
	var watching sync.WaitGroup
	watching.Go(func() { p.stops(g) })
	_ = cmd.Wait() // the error is in the state, too
	close(g.exited)
	watching.Wait()
	g.signal(syscall.SIGKILL)
	go g.reap()
}
