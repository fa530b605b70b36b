package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lessor-dev/lessor/internal/process"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// cudaDevices says to programs which GPUs there are.
const cudaDevices = "CUDA_VISIBLE_DEVICES"

// ourVariables are what a process is told by its environment (P1), and what no file may set. The
// token is nowhere else: everybody on the machine can read arguments.
var ourVariables = []string{
	readiness.VarPoolID, readiness.VarWorkerID, readiness.VarPoolURL, readiness.VarPoolToken,
	readiness.VarGPUDevice, cudaDevices,
}

// command is what a worker runs.
type command struct {
	args   []string
	dir    string
	env    []string
	stdout *lines
	stderr *lines
	// patience is how long what a process has printed may wait for its reader once it has ended.
	patience time.Duration
}

// running is a process, as the worker sees it that supervises it.
type running interface {
	// terminate asks the process to end; what it has started itself is its own business.
	terminate()
	// kill ends the process and what it has started.
	kill()
	// exited is closed once the process has ended.
	exited() <-chan struct{}
}

// ending is how a process ended.
type ending struct {
	ok   bool   // by itself, with exit code 0
	text string // for people
}

// launch runs a process until its end. Once it runs, launch calls started, and supervise in another
// goroutine, which returns once the process has exited. Tests replace it.
type launch func(c command, started func(pid int), supervise func(running)) ending

// runProcess is launch with real processes.
func runProcess(c command, started func(pid int), supervise func(running)) ending {
	late, noLonger := context.WithCancel(context.Background())
	defer noLonger()
	c.stdout.late, c.stderr.late = late.Done(), late.Done()
	p := &process.Process{
		Args:    c.args,
		Dir:     c.dir,
		Env:     c.env,
		Stdout:  c.stdout,
		Stderr:  c.stderr,
		Started: started,
		Stops: func(g *process.Group) {
			supervise(group{g})
			time.AfterFunc(c.patience, noLonger)
		},
	}
	state, err := p.Run()
	c.stdout.end()
	c.stderr.end()
	switch {
	case state == nil:
		return ending{text: fmt.Sprintf("cannot be started: %v", rootCause(err))}
	case state.Success():
		return ending{ok: true, text: "exit code 0"}
	default:
		return ending{text: strings.Replace(state.String(), "exit status", "exit code", 1)}
	}
}

// rootCause returns the error below those that repeat the name of the program.
func rootCause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// group is running for the group of a real process.
type group struct{ *process.Group }

func (g group) terminate()              { g.SignalLeader(syscall.SIGTERM) }
func (g group) kill()                   { g.Signal(syscall.SIGKILL) }
func (g group) exited() <-chan struct{} { return g.Exited() }

// environ returns the environment of a worker's processes: that of the supervisor, what the file
// adds, and what the supervisor tells them.
func environ(base []string, p *Entry, id string, gpu *uint32, url, token string) []string {
	// of a supervisor around this one
	env := slices.DeleteFunc(slices.Clone(base),
		func(v string) bool { return strings.HasPrefix(v, readiness.VarGPUDevice+"=") })
	for name, value := range p.Env {
		env = append(env, name+"="+value)
	}
	env = append(env, readiness.VarPoolID+"="+p.ID, readiness.VarWorkerID+"="+id,
		readiness.VarPoolURL+"="+url, readiness.VarPoolToken+"="+token)
	if gpu != nil {
		index := strconv.FormatUint(uint64(*gpu), 10)
		env = append(env, readiness.VarGPUDevice+"="+index, cudaDevices+"="+index)
	}
	return env
}
