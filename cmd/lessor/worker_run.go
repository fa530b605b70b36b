package main

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lessor-dev/lessor/internal/execworker"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// workerRunCmd is lessor worker run.
type workerRunCmd struct {
	remote `embed:""`

	Queue            []string      `required:"" placeholder:"NAME" help:"Queue to take tasks from, in turn with others. Repeatable."`
	Type             []string      `placeholder:"NAME" help:"Type of task to take. Repeatable. Without it: every type."`
	Tenant           string        `shared:"" placeholder:"NAME" help:"Tenant of the credential; needed only to make sure that it is this one."`
	Name             string        `placeholder:"NAME" help:"Stable name of the worker; by default the name of the machine, in a pool with the worker's name there."`
	Spool            string        `type:"bytes" placeholder:"DIR" help:"Directory for outputs over the inline limit; by default lessor/spool in the user's state directory."`
	InlineLimit      size          `type:"positive" default:"1MiB" placeholder:"SIZE" help:"Largest output that is reported inline, in bytes or as 512KiB, up to 64MiB; at most the coordinator's --limit-output."`
	DrainTimeout     time.Duration `type:"positive" default:"30s" placeholder:"DURATION" help:"How long running commands may go on after a signal to stop."`
	Capabilities     capabilities  `embed:""`
	Installer        string        `type:"file" placeholder:"PROGRAM" help:"Program that installs and removes packages when an operator asks for it. Without it the worker does neither."`
	InstallerTimeout time.Duration `type:"positive" default:"1h" placeholder:"DURATION" help:"How long the installer may take for one package, before it is stopped."`
	MetricsListen    string        `placeholder:"HOST:PORT" help:"Address on which to serve /metrics and /healthz over plain HTTP, to everybody who reaches it; by default there is none."`
	Log              logging       `embed:"" prefix:"log-"`

	Command []string `type:"bytes" arg:"" passthrough:"partial" help:"Command to run for every task."`
}

// Help is shown below the flags.
func (workerRunCmd) Help() string {
	return `Any program is a worker. It gets the payload on standard input and the task in its environment:
LESSOR_TASK_ID, LESSOR_ATTEMPT, LESSOR_ATTEMPT_ID, LESSOR_FENCING_TOKEN, LESSOR_WORKSPACE, LESSOR_QUEUE, LESSOR_TYPE, LESSOR_RUN_ID,
LESSOR_TASK_KEY, LESSOR_ASSET_ID, LESSOR_DEADLINE and TRACEPARENT.

Its standard output is the output of the task; over the inline limit it becomes a file in the spool and an artifact of the task. Its
standard error goes to those who watch.

Exit code 0 completes the task. Others are failures: 64 72 73 77 78 126 127 CONFIGURATION (not retried), 65 66 67 DATA_QUALITY (not
retried), 68 69 71 74 75 76 INFRASTRUCTURE, 124 TIMEOUT, any other USER_CODE; killed from outside: INFRASTRUCTURE.

--installer runs its program, without arguments, with LESSOR_PACKAGE_ACTION (install or uninstall), LESSOR_PACKAGE_NAME,
LESSOR_PACKAGE_VERSION, LESSOR_PACKAGE_SOURCE, LESSOR_PACKAGE_SHA256 and LESSOR_OPERATION_ID. Exit code 0: done; 65 66 E.PKG.INVALID,
77 E.PKG.PERMISSION, any other E.INTERNAL. After --installer-timeout its process group gets SIGTERM, and SIGKILL 4 seconds later.

A cancel sends SIGTERM to the command's process group, and SIGKILL shortly before the cancel grace ends. The first SIGINT, SIGTERM or SIGHUP
to the worker drains it: no new tasks, running commands go on for the drain timeout. The second stops it at once; its tasks go back.

Examples:
  lessor worker run --queue thumbs --type resize -j 4 -- ./resize.sh
  lessor worker run --queue mail -- sh -c 'jq -r .to | xargs notify'`
}

func (c workerRunCmd) Run(a *app) error {
	defer a.catchSignals()()
	if err := checkJobs(c.Capabilities.Jobs); err != nil {
		return err
	}
	if len(c.Queue) == 0 { // [] in the configuration file
		return fail(exitUsage, "", "--queue: must not be empty")
	}
	if c.InlineLimit > maxInline {
		return fail(exitUsage, "", "--inline-limit: is %d bytes; the limit is %d (64MiB)", c.InlineLimit, maxInline)
	}
	log, err := c.Log.logger(a)
	if err != nil {
		return err
	}
	a.warnStrays(log)
	warnExposed(log, "--token-file", c.TokenFile)
	warnExposed(log, "--tls-key", c.TLSKey)
	handler, err := c.handler(a)
	if err != nil {
		return err
	}
	cfg := c.config(log)
	spans, flush, err := a.traces("lessor-worker", log)
	if err != nil {
		return err
	}
	defer flush()
	cfg.TracerProvider = spans
	if cfg.Installer, err = c.installer(a, log); err != nil {
		return err
	}
	stop, err := c.serveMetrics(&cfg, log)
	if err != nil {
		return err
	}
	defer stop()
	return c.with(a, func(cl *client) error {
		w, err := worker.New(cl, c.Queue, cfg)
		if err != nil {
			return configError("worker run", err)
		}
		for _, t := range slices.Compact(slices.Sorted(slices.Values(c.Type))) { // Handle panics if a type comes twice
			w.Handle(t, handler)
		}
		if len(c.Type) == 0 {
			w.HandleDefault(handler)
		}
		defer a.closeUnanswered(cl)()
		err = w.Run(a.ctx)
		if errors.Is(err, worker.ErrConnClosed) {
			return fail(exitUnavailable, "the log names the tasks; others get them when their leases expire",
				"the coordinator did not answer the last reports for %v", unansweredAfter)
		}
		return workerError(err)
	})
}

const (
	// reportRoom is how much a frame needs beside one output, in bytes. A coordinator leaves more
	// room than that beside its --limit-output.
	reportRoom = 512 << 10
	// minMessage is the least size of the largest frame, in bytes: what every coordinator takes
	// (S7).
	minMessage = 4 << 20
)

func (c workerRunCmd) config(log *slog.Logger) worker.Config {
	cfg := worker.Config{
		Name:             c.name(),
		Version:          buildVersion(),
		Tenant:           c.Tenant,
		Workspace:        c.Workspace,
		PoolID:           ofPool(readiness.VarPoolID),
		InstallerTimeout: c.InstallerTimeout,
		DrainTimeout:     c.DrainTimeout,
		Disk:             c.Spool,
		MaxMessageBytes:  max(minMessage, int(c.InlineLimit)+reportRoom),
		Logger:           log,
		Hooks:            worker.Hooks{OnError: sayHints(log)},
	}
	c.Capabilities.apply(&cfg)
	return cfg
}

// name returns the name of the worker; empty: the default of the SDK, the name of the machine. The
// workers of a pool share a machine, and need names of their own.
func (c workerRunCmd) name() string {
	id := ofPool(readiness.VarWorkerID)
	if c.Name != "" || id == "" {
		return c.Name
	}
	host, _ := os.Hostname()
	return cmp.Or(host, "worker") + "-" + id
}

// ofPool returns a variable that the pool of this process has set; empty: no pool has started the
// process.
func ofPool(variable string) string {
	if os.Getenv(readiness.VarPoolURL) == "" {
		return ""
	}
	return os.Getenv(variable)
}

// sayHints returns a function that logs a hint when the worker cannot connect, and logs it again
// only when the hint changes. The worker itself does not know the flags, so its error cannot name
// them.
func sayHints(log *slog.Logger) func(error) {
	var last atomic.Value
	return func(err error) {
		if !errors.Is(err, worker.ErrNoConnection) {
			return
		}
		if _, hint := dialProblem(err.Error()); last.Swap(hint) != hint {
			log.Info("hint: " + hint) // the worker has logged what is wrong
		}
	}
}

func (c workerRunCmd) handler(a *app) (worker.Handler, error) {
	spool, err := c.spool()
	if err != nil {
		return nil, err
	}
	if err := spool.Check(); err != nil {
		return nil, fail(exitCannotStart, "name a directory with --spool", "cannot use the spool: %v", err)
	}
	handler, err := execworker.Config{
		Command:     commandOf(c.Command),
		Spool:       spool,
		InlineLimit: int(c.InlineLimit),
		Stop:        a.ctx.Done(),
		Kill:        a.stopNow.Done(),
	}.Handler()
	if err != nil {
		return nil, fail(exitUsage, "", "%v", err)
	}
	return handler, nil
}

// installer returns what installs packages; nil: nothing does.
func (c workerRunCmd) installer(a *app, log *slog.Logger) (worker.Installer, error) {
	if c.Installer == "" {
		return nil, nil
	}
	command := execworker.Command{c.Installer}
	if err := command.Check(""); err != nil {
		return nil, fail(exitUsage, "", "--installer: %v", err)
	}
	return execworker.Installer{Command: command, Log: log, Kill: a.stopNow.Done()}, nil
}

func (c workerRunCmd) spool() (execworker.Spool, error) {
	if c.Spool != "" {
		return execworker.NewSpool(c.Spool), nil
	}
	state, err := stateDir("--spool")
	return execworker.NewSpool(filepath.Join(state, "spool")), err
}
