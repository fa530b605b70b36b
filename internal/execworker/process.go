package execworker

import (
	"bytes"
	"errors"
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
	// stops signals the command when it has to stop. It runs in its own goroutine, and must return when exited is closed.
	stops func(exited <-chan struct{}, signal func(syscall.Signal))
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
		return nil, err
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

// await waits for the end of the command, while stops may signal it. Then it kills the processes that the command left in its group.
func (p *process) await(cmd *exec.Cmd) {
	group := cmd.Process.Pid
	signal := func(s syscall.Signal) { _ = syscall.Kill(-group, s) } // ESRCH: it has just ended
	exited := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { p.stops(exited, signal) })
	_ = cmd.Wait() // the error is in the state, too
	close(exited)
	watching.Wait()
	signal(syscall.SIGKILL)
}

// connect makes the pipes of the command. It gives the command files, not writers, so that cmd.Wait does not wait for other processes that
// inherited them.
func (p *process) connect(cmd *exec.Cmd) (*plumbing, error) {
	pl := &plumbing{}
	if len(p.stdin) > 0 {
		end, err := pl.feed(p.stdin)
		if err != nil {
			return nil, pl.abandon(err)
		}
		cmd.Stdin = end
	}
	out, err := pl.drain(p.stdout)
	if err != nil {
		return nil, pl.abandon(err)
	}
	errs, err := pl.drain(p.stderr)
	if err != nil {
		return nil, pl.abandon(err)
	}
	cmd.Stdout, cmd.Stderr = out, errs
	return pl, nil
}

// plumbing are the pipes between the worker and one command.
type plumbing struct {
	theirs []*os.File // the command's ends of the pipes; the worker closes its copies of them after the start
	ours   []*os.File // the worker's ends
	copies sync.WaitGroup
	mu     struct {
		sync.Mutex
		err error // errors of copying the output, joined
	}
}

// feed makes a pipe from which the command can read data. The command need not read all of it.
func (pl *plumbing) feed(data []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	pl.theirs, pl.ours = append(pl.theirs, r), append(pl.ours, w)
	pl.copies.Go(func() {
		_, _ = io.Copy(w, bytes.NewReader(data))
		_ = w.Close()
	})
	return r, nil
}

// drain makes a pipe whose contents go to sink. If the sink fails, the pipe is closed, so that the command's writes fail.
func (pl *plumbing) drain(sink io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	pl.theirs, pl.ours = append(pl.theirs, w), append(pl.ours, r)
	pl.copies.Go(func() {
		_, err := io.Copy(sink, r)
		_ = r.Close()
		if err != nil && !errors.Is(err, os.ErrClosed) {
			pl.mu.Lock()
			defer pl.mu.Unlock()
			pl.mu.err = errors.Join(pl.mu.err, err)
		}
	})
	return w, nil
}

// started closes the worker's copies of the command's ends.
func (pl *plumbing) started() {
	for _, end := range pl.theirs {
		_ = end.Close()
	}
}

// wait returns when all output is read, or after the delay.
func (pl *plumbing) wait(delay time.Duration) error {
	late := time.AfterFunc(delay, pl.hangUp)
	defer late.Stop()
	pl.copies.Wait()
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.mu.err
}

// hangUp closes the worker's ends, so that reads and writes of the pipes end.
func (pl *plumbing) hangUp() {
	for _, end := range pl.ours {
		_ = end.Close()
	}
}

// abandon closes all pipes that were made so far, and returns err.
func (pl *plumbing) abandon(err error) error {
	pl.started()
	pl.hangUp()
	pl.copies.Wait()
	return err
}
