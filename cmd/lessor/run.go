package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/diskroom"
	"github.com/lessor-dev/lessor/internal/pipe"
	"github.com/lessor-dev/lessor/internal/runner"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// runCmd is lessor run.
type runCmd struct {
	Jobs        uint          `type:"positive" short:"j" placeholder:"N" help:"Commands that run at the same time, 1 to 9,000; by default one per CPU, within the CPU limit of a container."`
	Data        string        `type:"file" placeholder:"DIR" help:"Keep the state of the run in this directory, so that it can be resumed."`
	Input       string        `type:"file" placeholder:"FILE" help:"Read the lines from this file; - is standard input, as without this flag."`
	Null        bool          `short:"0" help:"Lines end with NUL, not newline."`
	Replace     string        `short:"I" type:"bytes" default:"{}" placeholder:"STR" help:"What the line replaces in the arguments; if it is empty, the line always becomes the last one."`
	KeepOrder   bool          `short:"k" help:"Print the outputs in the order of the lines."`
	MaxAttempts uint32        `type:"positive" placeholder:"N" help:"Failures after which a line has failed for good (5); 1 is no retry."`
	Timeout     time.Duration `type:"positive" placeholder:"DURATION" help:"Longest time of one attempt, at least 100ms (no limit); then it is stopped and has failed; what it printed counts."`
	RetryFailed bool          `typed:"" help:"Run the lines again that have failed for good in an earlier start, or were cancelled or deleted."`
	Force       bool          `typed:"" help:"If --data holds another run, discard that and begin this one; if it holds this run, resume as without the flag."`

	Addr         string        `type:"nonempty" placeholder:"HOST:PORT" help:"Use this coordinator instead of an embedded one."`
	Tenant       string        `shared:"" placeholder:"NAME" help:"With --addr: tenant of the credential; needed only to make sure that it is this one."`
	Workspace    string        `placeholder:"NAME" help:"Workspace of the tasks; empty is \"default\"."`
	DrainTimeout time.Duration `type:"positive" default:"30s" placeholder:"DURATION" help:"How long running commands may go on after a signal to stop."`
	Verbose      bool          `short:"v" help:"Show the log of the coordinator and the worker."`

	credentials `embed:""`

	Command []string `type:"bytes" arg:"" passthrough:"partial" help:"Command to run for every line."`
}

// Help is shown below the flags.
func (runCmd) Help() string {
	return `Durable xargs: every line is a task of a coordinator, and is done once it is committed there. {} in any argument, or
STR with -I STR, is replaced by the line; without any, the line becomes the last argument. The input is read to its end
before the first command starts; empty lines are left out, unless --null. Commands have no standard input and no
terminal.

The output of each command is written whole to standard output, in the order in which they end, or with --keep-order in
that of the lines. Standard error is passed on line by line. With --json, standard output gets each finished task as a
JSON object instead, with its line, exit code and seconds.

A failed command is tried again with growing waits, unless its exit code says that this would not help (see lessor
worker run --help). Exit code 1 means that some lines failed for good.

With --data, a run that was stopped, by kill -9 too, resumes when the same command is given again with the same input: lines
that are done are not run again, and failed ones only with --retry-failed. The outputs of all lines are printed again, so
that every run that ends has written all of them. A changed input, command, working directory or option is refused, unless
--force. Without --data, the run lives in a temporary directory and cannot be resumed.

The first Ctrl-C lets running commands finish, the second kills them.

Examples:
  ls *.jpg | lessor run -j 4 -- convert {} {}.png
  find . -name '*.log' -print0 | lessor run -0 --data ./work --keep-order -- gzip -t
  lessor run --data ./work --input urls.txt --timeout 30s -- curl -sSf {}`
}

func (c runCmd) Run(a *app, line *kong.Context) (err error) {
	defer a.catchSignals()()
	if err := cmp.Or(c.refuseIdle(line), c.check()); err != nil {
		return err
	}
	for _, v := range a.strays() {
		a.note("warning: %s", strayText(v))
	}
	job, err := c.open(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.release(job)) }()
	work := newRunWork(c, a, job)
	spans, flush, err := a.traces("lessor", work.logger())
	if err != nil {
		return c.withResumeHint(err)
	}
	defer func() { // after the summary, which need not wait for the receiver of the spans
		flush()
		a.log.flush(stuckAfter)
	}()
	work.spans = spans
	began := time.Now()
	summary, err := work.run()
	a.log.flush(stuckAfter)
	if err != nil {
		work.noteStopped(summary, err)
		return c.withResumeHint(err)
	}
	return work.conclude(summary, time.Since(began))
}

// resumeWait says why a resumed run may seem to stand still. The embedded coordinator ends the
// leases of an earlier process at once, another one cannot.
func (c runCmd) resumeWait() string {
	if c.Addr == "" {
		return ""
	}
	return fmt.Sprintf("; if another process was running some, these wait up to %s until their leases expire",
		runner.SharedHeartbeatTimeout)
}

// refuseIdle refuses flags that do nothing without --addr or --data.
func (c runCmd) refuseIdle(line *kong.Context) error {
	return cmp.Or(
		refuseIdle(line, withoutAddr, func(flag *kong.Flag) bool { return c.Addr == "" && isConnection(flag) }),
		refuseIdle(line, "only with --data, which keeps a run", func(flag *kong.Flag) bool {
			return c.Data == "" && (flag.Name == "retry-failed" || flag.Name == "force")
		}),
	)
}

// check refuses what the coordinator would refuse later, when the data directory already holds the
// run.
func (c runCmd) check() error {
	if err := commandOf(c.Command).Check(c.Replace); err != nil {
		return fail(exitUsage, "write the command and its arguments after --", "%v", err)
	}
	if err := checkJobs(c.Jobs); err != nil {
		return err
	}
	if c.Addr != "" {
		if err := checkHostPort("addr", c.Addr); err != nil {
			return err
		}
	}
	if c.MaxAttempts > lease.MaxBudget {
		return fail(exitUsage, "", "--max-attempts: is %d; the limit is %d", c.MaxAttempts, lease.MaxBudget)
	}
	if c.Timeout != 0 && (c.Timeout < lease.MinTimeout || c.Timeout > lease.MaxTimeout) {
		return fail(exitUsage, "", "--timeout: is %v; the range is %v to %v",
			c.Timeout, lease.MinTimeout, lease.MaxTimeout)
	}
	return nil
}

// open reads the input and locks the data directory.
func (c runCmd) open(a *app) (*runner.Job, error) {
	input, err := c.input(a)
	if err != nil {
		return nil, err
	}
	defer func() { _ = input.Close() }()
	dir := c.Data
	if dir != "" && boltstore.Exists(dir) {
		return nil, fail(exitCannotStart, hintRunDir, "data directory %s belongs to a coordinator", dir)
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "lessor-run-"); err != nil {
			return nil, fail(exitCannotStart, "name a directory with --data",
				"cannot create a temporary directory: %v", err)
		}
	}
	job, err := runner.Open(a.ctx, dir, c.options(), input, c.Force)
	if err != nil && c.Data == "" {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return job, openError(dir, err)
}

func (c runCmd) input(a *app) (io.ReadCloser, error) {
	if c.Input == "" || c.Input == "-" {
		if isTerminal(a.in) {
			a.note("reading lines from the terminal; end with Ctrl-D")
		}
		return io.NopCloser(a.in), nil
	}
	if pipe.Is(c.Input) {
		return io.NopCloser(&pipeInput{name: c.Input}), nil
	}
	f, err := os.Open(c.Input)
	if err != nil {
		return nil, fail(exitUsage, "", "--input: %v", err)
	}
	return f, nil
}

// pipeInput is a named pipe that the first Read opens. Opening it waits for a writer, which only a
// signal may end; runner.Open ends a Read at a signal.
type pipeInput struct {
	name string
	file *os.File
}

func (p *pipeInput) Read(b []byte) (n int, err error) {
	if p.file == nil {
		if p.file, err = os.Open(p.name); err != nil {
			return 0, err
		}
	}
	return p.file.Read(b)
}

func (c runCmd) options() runner.Options {
	dir, _ := os.Getwd() // empty: it is not known
	placeholder := ""
	if c.Replace != "{}" {
		placeholder = strconv.Quote(c.Replace)
	}
	return runner.Options{
		Command:     runner.QuoteCommand(commandOf(c.Command)),
		Placeholder: placeholder,
		Nulls:       c.Null,
		MaxAttempts: c.MaxAttempts,
		Timeout:     c.Timeout,
		Addr:        c.Addr,
		Workspace:   c.Workspace,
		Dir:         dir,
		Temporary:   c.Data == "",
	}
}

const hintRunDir = "name an empty directory, or one of an earlier lessor run"

// openError returns the error for a run that cannot begin.
func openError(dir string, err error) error {
	var (
		changed *runner.ChangedError
		inUse   *runner.InUseError
		tooLong *runner.LineTooLongError
		nul     *runner.NULError
		input   *runner.InputError
		written *runner.ManifestError
		foreign *runner.ForeignError
		full    *diskroom.FullError
		stopped *interruptedError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &stopped):
		return err
	case errors.As(err, &input):
		return fail(exitUsage, "", "--input: %v", input.Err)
	case errors.As(err, &written):
		return fail(exitCannotStart, "use the version of lessor that wrote it, or name another directory",
			"%v", written)
	case errors.As(err, &foreign):
		return fail(exitCannotStart, hintRunDir, "%v", foreign)
	case errors.As(err, &changed):
		return fail(exitFailed, "name another directory, or use --force to discard that run", "%v", changed)
	case errors.As(err, &inUse):
		return fail(exitCannotStart, "wait for that process to end, or name another directory", "%v", inUse)
	case errors.As(err, &tooLong):
		return fail(exitUsage, "write the data to files and use the names of the files as lines", "%v", tooLong)
	case errors.As(err, &nul):
		return fail(exitUsage, "use --null if the lines end with NUL, as those of find -print0", "%v", nul)
	case errors.As(err, &full):
		return fail(exitCannotStart, "the input must have an end; if it is large, use --data with a directory on a disk that has more space", "cannot copy the input to data directory %s: %v", dir, full)
	}
	return storeError(dir, err) // the directory as such is at fault, as that of a store can be
}

// screen returns the screen, which keeps the progress bar apart from the other output on the
// terminal.
func (c runCmd) screen(a *app) *runner.Screen {
	same := runner.Apart
	switch {
	case isTerminal(a.err) && isTerminal(a.out):
		same = runner.SameTerminal
	case sameFile(a.out, a.err):
		same = runner.SameFile
	}
	return runner.NewScreen(&givingUp{to: a.out, app: a}, &givingUp{to: a.err, app: a}, same)
}

// sameFile reports whether two writers are the same file or pipe, as with 2>&1. Anything but files
// may be the same.
func sameFile(a, b io.Writer) bool {
	f, ok1 := a.(*os.File)
	g, ok2 := b.(*os.File)
	if !ok1 || !ok2 {
		return true
	}
	first, err1 := f.Stat()
	second, err2 := g.Stat()
	return err1 != nil || err2 != nil || os.SameFile(first, second)
}

// barWidth returns the function for the width of the progress bar, or nil if nobody would see a
// bar: a dumb terminal shows the codes that remove one.
func barWidth(w io.Writer) func() int {
	if !isTerminal(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() int {
		const usual = 80
		return cmp.Or(widthOf(w), usual)
	}
}

// record returns what --json prints for a task, or nil without --json.
func (c runCmd) record(a *app) func(io.Writer, *lessorv1.Task, string) error {
	if !a.json {
		return nil
	}
	return printRecord
}

// withResumeHint adds a hint to an error that says how to resume the run, or where there may be
// room for it.
func (c runCmd) withResumeHint(err error) error {
	f := *explain(err)
	switch {
	case c.Data == "" && c.Addr == "" && f.code == exitStore:
		f.hint = "the run was in the directory for temporary files; if its disk is full, name a larger one with --data or TMPDIR"
	case f.hint == "" && c.Data != "":
		f.hint = "run the same command again to resume"
	}
	return &f
}

// release releases the data directory, and removes a temporary one.
func (c runCmd) release(job *runner.Job) error {
	if c.Data == "" {
		return job.Remove()
	}
	return job.Close()
}
