package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/bench"
)

// benchCmd is lessor bench.
type benchCmd struct {
	Addr      string        `type:"nonempty" placeholder:"HOST:PORT" help:"Measure the coordinator at this address instead of starting one."`
	Tenant    string        `shared:"" placeholder:"NAME" help:"With --addr: tenant of the credential; needed only to make sure that it is this one."`
	Producers []int         `type:"nonempty" default:"64" placeholder:"N,..." help:"Goroutines that submit single tasks, 1 to 10,000; several numbers are measured one after the other."`
	Workers   int           `default:"2" placeholder:"N" help:"Workers, each with a connection, 1 to 1,000."`
	Slots     int           `default:"64" placeholder:"N" help:"Handlers that a worker runs at once, 1 to 10,000."`
	Payload   size          `default:"256" placeholder:"SIZE" help:"Payload of a task, 0 to 1MiB; in bytes or as 4KiB."`
	Tasks     int           `default:"10000" placeholder:"N" help:"Tasks of each phase, 1 to 1,000,000."`
	Backlog   []int         `type:"nonempty" default:"100000" placeholder:"N,..." help:"Waiting tasks with which memory, restart, drain and enqueue are measured, up to 10,000,000; several numbers are measured one after the other; 0 skips that."`
	Phases    []string      `type:"nonempty" placeholder:"NAME,..." help:"Measure only these phases, such as drain, or enqueue for all that begin so; by default all."`
	Repeat    int           `default:"3" placeholder:"N" help:"Repetitions, 1 to 100."`
	LimitSpan time.Duration `default:"200ms" placeholder:"DURATION" help:"How long each limit of the machine is measured in each repetition, 1ms to 1m."`
	Dir       string        `type:"file" placeholder:"DIR" help:"Directory for temporary data, on the disk to measure; by default the system's temporary directory."`
	Profile   string        `type:"file" placeholder:"DIR" help:"Run each phase once more and write CPU and heap profiles of the coordinator, and CPU profiles of the load, to this directory."`
	Plot      string        `type:"file" placeholder:"FILE" help:"Write a chart of the shares of the limits to this file, as SVG."`

	credentials `embed:""`
}

// Help is shown below the flags.
func (benchCmd) Help() string {
	return `Measures enqueue, drain, end to end, latency, memory and restart on coordinators that it starts as child processes with temporary data and,
in turn with them, the limits of the disk, the store and gRPC alone. Each result is shown as a share of the limit that it reaches first. The
load runs on the same machine as the coordinator. See docs/benchmarks.md.

Examples:
  lessor bench
  lessor bench --phases drain,end_to_end --tasks 200000 --slots 1000
  lessor bench --producers 1,64,256 --tasks 200000 --backlog 1000000 --dir /var/lib/lessor --json > bench.json`
}

func (c benchCmd) Run(a *app, line *kong.Context) error {
	defer a.catchSignals()()
	if err := c.refuseIdle(line); err != nil {
		return err
	}
	config, err := c.config(a)
	if err != nil {
		return err
	}
	if c.Addr != "" {
		defer context.AfterFunc(a.ctx, func() { a.note("stopping: the tasks are deleted; a second signal leaves them there") })()
	}
	report, err := c.measure(a, config)
	if report != nil { // also if only what came after the measurement failed
		err = errors.Join(err, c.print(a, report))
	}
	if out, ok := errors.AsType[*bench.RangeError](err); ok {
		return fail(exitUsage, "see lessor bench --help", "%v", out)
	}
	if unknown, ok := errors.AsType[*bench.PhaseError](err); ok {
		return fail(exitUsage, "", "%v", unknown)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) ||
		errors.Is(err, syscall.EROFS) {
		return fail(exitUsage, "--dir and --profile must name writable directories", "%v", err)
	}
	return err
}

// refuseIdle refuses flags that do nothing with --addr, or nothing without it.
func (c benchCmd) refuseIdle(line *kong.Context) error {
	if c.Addr == "" {
		return refuseIdle(line, withoutAddr, isConnection)
	}
	return cmp.Or(
		refuseIdle(line, "cannot be used with --addr; only coordinators that the command starts are restarted", func(flag *kong.Flag) bool {
			return flag.Name == "backlog" && !slices.Equal(c.Backlog, []int{0})
		}),
		refuseIdle(line, "cannot be used with --addr; only coordinators that the command starts are profiled", func(flag *kong.Flag) bool {
			return flag.Name == "profile"
		}),
	)
}

func (benchCmd) print(a *app, report *bench.Report) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(report)
	}
	return printReport(a.out, report)
}

// measure runs the benchmark and draws it. It begins the file of the picture first, because a run
// takes long.
func (c benchCmd) measure(a *app, config bench.Config) (report *bench.Report, err error) {
	if c.Plot == "" {
		return bench.Run(a.ctx, config)
	}
	picture, err := newPendingFile(c.Plot, true, public)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, picture.discard()) }()
	if report, err = bench.Run(a.ctx, config); err != nil {
		return report, err
	}
	if err = report.Plot(picture); err != nil {
		return report, err
	}
	return report, picture.keep()
}

// config returns the configuration of the benchmark, whose ranges are not checked yet.
func (c benchCmd) config(a *app) (config bench.Config, err error) {
	if c.Addr != "" {
		if config.Options, err = c.options(c.Addr); err != nil {
			return config, err
		}
		config.Tenant = c.Tenant
		if err := checkHostPort("addr", c.Addr); err != nil {
			return bench.Config{}, err
		}
		c.Profile = ""
	}
	self, err := os.Executable()
	if err != nil {
		return bench.Config{}, err
	}
	config.Command, config.Dir, config.Addr = []string{self, "serve"}, c.Dir, c.Addr
	config.Producers, config.Workers, config.Slots, config.Payload = c.Producers, c.Workers, c.Slots, int(c.Payload)
	config.Tasks, config.Backlogs, config.Repeat, config.LimitSpan, config.Phases = c.Tasks, c.Backlog,
		c.Repeat, c.LimitSpan, c.Phases
	config.Kill, config.Profile, config.Version, config.Progress = a.stopNow.Done(), c.Profile,
		buildVersion(), func(what string) { a.note("%s", what) }
	return config, nil
}
