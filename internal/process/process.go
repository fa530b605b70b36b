package process

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// defaultPipeDelay is PipeDelay if none is given.
const defaultPipeDelay = time.Second

// Process is one run of a program.
type Process struct {
	// Args are the program and its arguments. A program whose name has no slash is looked up in
	// PATH. Required.
	Args []string
	// Dir is where the program runs. A relative path of the program is relative to it. Empty: where
	// this process runs.
	Dir string
	// Env is the environment. Nil: that of this process.
	Env []string
	// Stdin is the input. Empty: none.
	Stdin []byte
	// Stdout and Stderr get the output, each from its own goroutine. If one fails, the writes of
	// the program fail from then on. Required.
	Stdout, Stderr io.Writer
	// PipeDelay is how long to wait for the end of the output once the program has ended. A process
	// that left the group may still hold a pipe open. Default 1 s.
	PipeDelay time.Duration
	// Started is called once the program has started, before Stops. It must return soon: until
	// then, the end of the program is not noticed. Nil: nothing is called.
	Started func(pid int)
	// Stops signals the program when it has to stop. It runs in its own goroutine, and must return
	// once the program has exited and nothing that Stops has to wait for is left. Nil: the program
	// ends by itself.
	Stops func(*Group)
}

// Run starts the program and waits for its end. The error is about the start, or about reading the
// output. The state says how the program ended; it is nil if the program did not start. It is not
// an error if the program fails.
func (p *Process) Run() (*os.ProcessState, error) {
	// The kernel sends Pdeathsig when the thread that started the program ends, even if this
	// process lives on. So the thread must not end.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Dir, cmd.Env = p.Dir, p.Env
	cmd.SysProcAttr = ownGroup()
	pipes, err := p.connect(cmd)
	if err != nil {
		return nil, err
	}
	delay := cmp.Or(p.PipeDelay, defaultPipeDelay)
	err = cmd.Start()
	pipes.started()
	if err != nil {
		_ = pipes.wait(delay) // the error of the start is more important
		return nil, err
	}
	p.await(cmd)
	return cmd.ProcessState, pipes.wait(delay)
}

// await waits for the end of the program, while Stops may signal it. Then it kills the processes
// that are left in the program's group.
func (p *Process) await(cmd *exec.Cmd) {
	if p.Started != nil {
		p.Started(cmd.Process.Pid)
	}
	g := &Group{id: cmd.Process.Pid, leader: cmd.Process, exited: make(chan struct{})}
	var watching sync.WaitGroup
	if p.Stops != nil {
		watching.Go(func() { p.Stops(g) })
	}
	_ = cmd.Wait() // the error is in the state, too
	close(g.exited)
	watching.Wait()
	g.Signal(syscall.SIGKILL)
	go g.reap()
}
