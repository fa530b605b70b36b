package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// connect makes the pipes of the program. It gives the program files, not writers, so that cmd.Wait
// does not wait for other processes that inherited them.
func (p *Process) connect(cmd *exec.Cmd) (*plumbing, error) {
	pl := &plumbing{}
	if len(p.Stdin) > 0 {
		end, err := pl.feed(p.Stdin)
		if err != nil {
			return nil, pl.abandon(err)
		}
		cmd.Stdin = end
	}
	out, err := pl.drain(p.Stdout)
	if err != nil {
		return nil, pl.abandon(err)
	}
	errs, err := pl.drain(p.Stderr)
	if err != nil {
		return nil, pl.abandon(err)
	}
	cmd.Stdout, cmd.Stderr = out, errs
	return pl, nil
}

// plumbing are the pipes between this process and one program.
type plumbing struct {
	theirs []*os.File // the program's ends of the pipes; this process closes its copies of them after the start
	ours   []*os.File // the ends of this process
	copies sync.WaitGroup
	mu     struct {
		sync.Mutex
		err error // errors of copying the output, joined
	}
}

// feed makes a pipe from which the program can read data. The program need not read all of it.
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

// drain makes a pipe whose contents go to sink. If the sink fails, the pipe is closed, so that the
// program's writes fail.
func (pl *plumbing) drain(sink io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	pl.theirs, pl.ours = append(pl.theirs, w), append(pl.ours, r)
	pl.copies.Go(func() {
		_, err := io.Copy(sink, r)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = copyRest(sink, r)
		}
		_ = r.Close()
		if err != nil {
			pl.mu.Lock()
			defer pl.mu.Unlock()
			pl.mu.err = errors.Join(pl.mu.err, err)
		}
	})
	return w, nil
}

// started closes this process's copies of the program's ends.
func (pl *plumbing) started() {
	for _, end := range pl.theirs {
		_ = end.Close()
	}
}

// wait returns when all output is read. Once the program has ended, wait does so after the delay,
// too, if another process keeps a pipe open; but not before what the pipes hold is in the sinks,
// however slow these are.
func (pl *plumbing) wait(delay time.Duration) error {
	late := time.Now().Add(delay)
	for _, end := range pl.ours {
		_ = end.SetDeadline(late)
	}
	pl.copies.Wait()
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.mu.err
}

// maxPipe is the most that a pipe can hold, in bytes, unless root has made it larger.
const maxPipe = 1 << 20

// copyRest copies what the pipe holds, and waits for nothing more.
func copyRest(sink io.Writer, r *os.File) error {
	if err := r.SetReadDeadline(time.Time{}); err != nil { // while it is exceeded, nothing can be read
		return err
	}
	raw, err := r.SyscallConn()
	if err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for left := maxPipe; left > 0; {
		n := 0
		err := raw.Read(func(fd uintptr) (done bool) {
			err := error(syscall.EINTR)
			for errors.Is(err, syscall.EINTR) {
				n, err = syscall.Read(int(fd), buf) // EAGAIN: the pipe is empty
			}
			return true
		})
		if err != nil || n <= 0 {
			return err
		}
		if _, err := sink.Write(buf[:n]); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// abandon closes all pipes that were made so far, and returns err.
func (pl *plumbing) abandon(err error) error {
	pl.started()
	for _, end := range pl.ours {
		_ = end.Close()
	}
	pl.copies.Wait()
	return err
}
