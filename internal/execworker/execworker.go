package execworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lessor-dev/lessor/internal/process"
	"github.com/lessor-dev/lessor/worker"
)

// DefaultInlineLimit is the largest output, in bytes, that a coordinator accepts inside a report by
// default (S7).
const DefaultInlineLimit = 1 << 20

const (
	// stopTimeout is how long commands may take to stop when the worker stops. It is shorter than
	// the worker's own stop timeout.
	stopTimeout = 4 * time.Second
	// exitDelay is how long it may take until the exit of a command is noticed. If this process was
	// stopped meanwhile, it may notice first that time is up.
	exitDelay = 20 * time.Millisecond
	// lostGrace is how long a command may take to stop after its lease was lost (K2).
	lostGrace = 500 * time.Millisecond
	// maxMargin is how long before the end of the grace a cancelled command is killed at the
	// earliest. The margin leaves time to report.
	maxMargin = time.Second
)

// Config says how commands are run.
type Config struct {
	// Command to run. Required.
	Command Command
	// Arguments: the payload goes into the arguments of Command (see Command.Fill) instead of
	// standard input.
	Arguments bool
	// Placeholder is what the payload replaces in the arguments. Empty: it becomes the last one.
	Placeholder string
	// Spool stores outputs over InlineLimit. Required.
	Spool Spool
	// InlineLimit is the largest output, in bytes, that goes into the report. A larger output is
	// stored in Spool and reported as an artifact. Default: DefaultInlineLimit.
	InlineLimit int
	// KeepFailed: keep in Spool what a failed command printed, if anything.
	KeepFailed bool
	// Timeout is the longest time of an attempt; 0: no limit. An attempt that takes longer is
	// stopped and fails. Unlike the attempt_timeout of its task, this does not end its lease, so
	// that what the command printed can be kept.
	Timeout time.Duration
	// Stderr gets the standard error of all commands, line by line, in addition to the coordinator.
	// It must allow concurrent writes. Nil: only the coordinator gets it.
	Stderr io.Writer
	// Stop, when closed, gives back the tasks whose commands wait for room on this machine, so that
	// none starts any more. Nil: never.
	Stop <-chan struct{}
	// Kill, when closed, ends all commands at once. Nil: never.
	Kill <-chan struct{}
}

// Handler returns the handler that runs the command for each task.
func (c Config) Handler() (worker.Handler, error) {
	if err := c.Command.Check(c.Placeholder); err != nil {
		return nil, err
	}
	c.InlineLimit = cmp.Or(c.InlineLimit, DefaultInlineLimit)
	return c.handle, nil
}

func (c Config) handle(ctx context.Context, t *worker.Task) ([]byte, error) {
	if c.Timeout != 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, c.Timeout, tookTooLong(c.Timeout))
		defer stop()
	}
	out := &capture{spool: c.Spool, name: c.Spool.name(t.ID, t.Attempt), limit: c.InlineLimit}
	defer out.discard()
	mayKeep, err := c.run(ctx, t, out)
	switch {
	case err != nil && c.KeepFailed && out.size > 0 && mayKeep:
		return nil, c.keepFailed(err, out)
	case err != nil:
		return nil, err
	case out.inline():
		return out.memory.Bytes(), nil
	}
	return nil, c.attach(t, out)
}

// tookTooLong is the error of an attempt that took longer than Timeout.
type tookTooLong time.Duration

func (t tookTooLong) Error() string { return fmt.Sprintf("it took longer than %v", time.Duration(t)) }

// run runs the command, and reports whether what it printed may be kept if it has failed: it has
// ended by itself, or took too long. If the command was told to stop, even exit code 0 counts as a
// failure: many programs end with code 0 after a SIGTERM although their work is only half done.
func (c Config) run(ctx context.Context, t *worker.Task, out *capture) (mayKeep bool, err error) {
	last := &tail{}
	sinks := []io.Writer{last, t.Output("stderr")}
	if c.Stderr != nil {
		lines := &lineWriter{to: c.Stderr}
		defer lines.flush()
		sinks = append(sinks, lines)
	}
	p := c.process(ctx, t)
	p.Stdout, p.Stderr = out, io.MultiWriter(sinks...)
	told := false // the command was told to stop
	p.Stops = func(g *process.Group) { told = c.stop(ctx, t, g) }
	state, err := c.runOnceThereIsRoom(ctx, t, p)
	byItself := state != nil && !told
	switch cause := context.Cause(ctx); {
	case closed(c.Kill) && !byItself:
		return false, worker.Release(0, "the worker was told to stop at once")
	case errors.Is(cause, tookTooLong(c.Timeout)) && !byItself:
		if state == nil {
			cause = fmt.Errorf("%w: %w", cause, err) // it has never begun
		}
		return err == nil, worker.WithCategory(worker.Timeout, stopped(cause, state))
	case cause != nil && !byItself:
		return false, stopped(cause, state)
	case closed(c.Stop) && state == nil && noRoom(err):
		return false, worker.Release(0, "the worker stops, and had no room for the command")
	case err != nil && state == nil:
		return false, err
	case err != nil: // what was printed is not complete; if it was kept, the spool would stay full
		return false, worker.WithCategory(worker.Infrastructure, err)
	}
	return true, exitFailure(state, last)
}

func (c Config) process(ctx context.Context, t *worker.Task) *process.Process {
	p := &process.Process{Args: c.Command, Env: environment(ctx, t), Stdin: t.Payload}
	if c.Arguments {
		p.Args, p.Stdin = c.Command.Fill(c.Placeholder, string(t.Payload)), nil
	}
	return p
}

// startPause is how long to wait before a command is started again for which this machine had no
// room.
const startPause = 500 * time.Millisecond

// runOnceThereIsRoom runs the command. If this machine has no room for another process, it waits
// for room, and says so once: neither the task nor the command is at fault, and most often another
// command ends soon.
func (c Config) runOnceThereIsRoom(ctx context.Context, t *worker.Task, p *process.Process) (*os.ProcessState, error) {
	for said := false; ; said = true {
		state, err := p.Run()
		if state != nil {
			return state, err
		}
		err = startFailure(p.Args[0], err)
		if !noRoom(err) {
			return nil, err
		}
		if !said {
			c.note(t, fmt.Sprintf("%v; waiting until there is room\n", err))
		}
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return nil, err
		case <-c.Stop:
			return nil, err
		case <-c.Kill:
			return nil, err
		}
	}
}

// note writes a line to where the standard error of the command goes.
func (c Config) note(t *worker.Task, line string) {
	_, _ = io.WriteString(t.Output("stderr"), line)
	if c.Stderr != nil {
		_, _ = io.WriteString(c.Stderr, line)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func stopped(cause error, state *os.ProcessState) error {
	if state == nil {
		return cause
	}
	return fmt.Errorf("%w; the command was stopped: %v", cause, state)
}

// group is a process.Group.
type group interface {
	Signal(s syscall.Signal) (sent bool)
	Exited() <-chan struct{}
	Ended() bool
}

// stop ends the command of a task when ctx ends or Kill is closed. It returns false if the command
// ended by itself before.
func (c Config) stop(ctx context.Context, t *worker.Task, g group) (told bool) {
	return stopGroup(ctx, c.Kill, g, func(cause error) (time.Duration, <-chan struct{}) {
		if errors.Is(cause, worker.ErrLeaseLost) {
			return untilKill(cause), nil
		}
		return untilKill(cause), t.Lost()
	})
}

// stopGroup ends a command when ctx ends or kill is closed. It returns false if the command ended
// by itself before. The whole process group gets the time to stop: a shell that runs one program
// exits at once at a SIGTERM, and the program may have much left to do. limits returns how long
// that may take, by the cause of ctx, and what cuts it short.
func stopGroup(
	ctx context.Context, kill <-chan struct{}, g group, limits func(cause error) (time.Duration, <-chan struct{}),
) (told bool) {
	select {
	case <-g.Exited():
	case <-kill:
	case <-ctx.Done():
		select {
		case <-g.Exited():
		case <-kill:
		case <-time.After(exitDelay):
		}
	}
	switch {
	case closed(g.Exited()): // first: what the command has done counts, even if it has to stop at that moment
		return false
	case closed(kill):
		return g.Signal(syscall.SIGKILL)
	case !g.Signal(syscall.SIGTERM):
		return false
	}
	span, lost := limits(context.Cause(ctx))
	patience := time.NewTimer(span)
	defer patience.Stop()
	poll := time.NewTicker(process.Poll)
	defer poll.Stop()
	for !g.Ended() {
		select {
		case <-poll.C:
			continue
		case <-patience.C:
		case <-lost:
		case <-kill:
		}
		g.Signal(syscall.SIGKILL)
		break
	}
	return true
}

// untilKill returns how long to wait between SIGTERM and SIGKILL.
func untilKill(cause error) time.Duration {
	if stop, ok := errors.AsType[*worker.StopError](cause); ok && !stop.GraceEnds.IsZero() {
		grace := time.Until(stop.GraceEnds)
		return grace - min(grace/10, maxMargin)
	}
	if errors.Is(cause, worker.ErrDraining) {
		return stopTimeout
	}
	return lostGrace
}

// attach keeps the output in the spool and adds it to the task as an artifact.
func (c Config) attach(t *worker.Task, out *capture) error {
	if err := out.keep(); err != nil {
		return worker.WithCategory(worker.Infrastructure, err)
	}
	path, err := filepath.Abs(c.Spool.Path(out.name)) // who reads it does not know where the worker was started
	if err != nil {
		return worker.WithCategory(worker.Infrastructure, err)
	}
	t.AddArtifact(worker.Artifact{
		ResourceID: out.name,
		Type:       "application/octet-stream",
		Size:       out.size,
		Metadata:   map[string]string{"path": path, "channel": "stdout"},
	})
	return nil
}

// keepFailed keeps the output of a failed attempt in the spool. If that fails, too, the returned
// error says so and still wraps the failure.
func (c Config) keepFailed(failure error, out *capture) error {
	if err := out.keep(); err != nil {
		return fmt.Errorf("%w (its output was lost: %w)", failure, err)
	}
	return failure
}
