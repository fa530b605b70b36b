package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Command is what to run.
type Command struct {
	// Path of the program. Empty: the lessor under test.
	Path string
	Args []string
	// Under is a command that runs the program, given as its last arguments. Empty: none.
	Under []string
	// Env is added to the environment of the test.
	Env []string
	// Dir is the working directory. Empty: that of the test.
	Dir string
	// User is the user who runs it. Nil: the user who runs the test.
	User *syscall.Credential
	// Stdin is its input. Nil: none.
	Stdin io.Reader
	// Stdout receives its output. Nil: the output is discarded.
	Stdout io.Writer
}

// Process is a process that a test started. It is killed when the test ends, if it still runs.
type Process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr *buffer
	ended  chan struct{}
}

// defaultEnv is added to the environment of every process. The first variable saves the second that
// a program with the race detector waits at its end. The others switch off the limits of memory and
// disk use at which a worker takes no work, since the machine of the tests may be above them.
var defaultEnv = []string{"GORACE=atexit_sleep_ms=0", "LESSOR_HEALTH_MEM=101", "LESSOR_HEALTH_DISK=101"}

// Start starts a process.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	if c.Path == "" {
		c.Path = binary
	}
	if len(c.Under) > 0 {
		c.Path, c.Args = c.Under[0], slices.Concat(c.Under[1:], []string{c.Path}, c.Args)
	}
	p := &Process{t: t, cmd: exec.Command(c.Path, c.Args...), stderr: &buffer{}, ended: make(chan struct{})}
	p.cmd.Env = slices.Concat(os.Environ(), defaultEnv, c.Env)
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = c.Dir, c.Stdin, c.Stdout, p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.User}
	// How long to read what is left in the pipes of a killed process, if another process holds them
	// open. This is enough for a busy machine; what comes later is lost.
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // the error is also in ProcessState
	}()
	t.Cleanup(p.cleanUp)
	return p
}

// Kill ends the process by SIGKILL, and fails the test if it had ended otherwise before.
func (p *Process) Kill() {
	p.t.Helper()
	_ = p.cmd.Process.Kill()
	p.await()
	if !p.Killed() {
		p.t.Fatalf("%v ended by itself before it was killed: %v\n%s", p, p.cmd.ProcessState, p.Stderr())
	}
}

// KillOrStoreFailed ends the process by SIGKILL; the process may also have ended by itself because
// its store failed.
func (p *Process) KillOrStoreFailed() {
	p.t.Helper()
	_ = p.cmd.Process.Kill()
	const storeFailed = 70
	if code := p.Wait(); code != storeFailed && !p.Killed() {
		p.t.Fatalf("%v ended: %v\n%s", p, p.cmd.ProcessState, p.Stderr())
	}
}

// Killed reports whether SIGKILL ended the process. Call it only after the process has ended.
func (p *Process) Killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Pause stops the process by SIGSTOP, as a swapping machine or a debugger would. Resume lets it go
// on.
func (p *Process) Pause() { p.signal(syscall.SIGSTOP) }

// Freeze is like Pause, and returns when no thread of the process runs any more. A system call
// under way goes on in the kernel, but the process does not see its result.
func (p *Process) Freeze() {
	p.t.Helper()
	p.Pause()
	for deadline := time.Now().Add(Patience); !p.frozen(); {
		if p.hasEnded() || time.Now().After(deadline) {
			p.t.Fatalf("%v does not stop", p)
		}
	}
}

// frozen reports whether the first thread has stopped; by then the kernel lets no other thread
// return from a system call.
func (p *Process) frozen() bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid())) // if the process has ended, it is not frozen
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("T"))
}

// Resume lets a paused process go on.
func (p *Process) Resume() { p.signal(syscall.SIGCONT) }

// Stop sends SIGTERM, waits until the process has ended, and returns its exit code.
func (p *Process) Stop() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.Wait()
}

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// Wait waits until the process has ended and returns its exit code; -1 if a signal ended it.
func (p *Process) Wait() int {
	p.t.Helper()
	p.await()
	return p.cmd.ProcessState.ExitCode()
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Stderr returns what the process has printed on standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// String names the process in messages.
func (p *Process) String() string {
	return fmt.Sprintf("process %d (%s)", p.cmd.Process.Pid, strings.Join(p.cmd.Args[1:], " "))
}

// await waits for the end of the process. A process that hangs gets SIGABRT, so that it prints its
// goroutines: some commands catch SIGQUIT.
func (p *Process) await() {
	p.t.Helper()
	if p.endedWithin(Patience) {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGABRT)
	if !p.endedWithin(time.Second) {
		_ = p.cmd.Process.Kill()
	}
	p.t.Fatalf("%v did not end:\n%s", p, p.Stderr())
}

func (p *Process) endedWithin(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	select {
	case <-p.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *Process) cleanUp() {
	_ = p.cmd.Process.Kill()
	if !p.endedWithin(Patience) {
		p.t.Errorf("%v survived SIGKILL", p)
		return
	}
	for _, bad := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if strings.Contains(p.Stderr(), bad) {
			p.t.Errorf("%v printed %q:\n%s", p, bad, p.Stderr())
			return
		}
	}
}

// Self returns the path of the test binary, for a test that starts itself as its processes.
func Self(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

// End ends the process by SIGKILL, unless it has ended by itself.
func (p *Process) End() {
	p.t.Helper()
	_ = p.cmd.Process.Kill()
	p.await()
}
