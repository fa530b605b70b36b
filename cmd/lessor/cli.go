package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/config"
	"github.com/lessor-dev/lessor/internal/execworker"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// cli is the grammar of the command line.
type cli struct {
	Config config.File `type:"bytes" placeholder:"FILE" env:"LESSOR_CONFIG" help:"Read settings from this YAML file; its keys are flags, such as addr: HOST:PORT and serve: {data: DIR}."`
	JSON   bool        `name:"json" help:"Print JSON: one object per line for lists and streams."`

	ShowVersion versionFlag `name:"version" help:"Show the version and exit."`

	Run     runCmd     `cmd:"" help:"Run a command for every input line, durably: xargs that survives a crash."`
	Serve   serveCmd   `cmd:"" bare:"" help:"Run a coordinator."`
	Submit  submitCmd  `cmd:"" help:"Submit a task."`
	Task    taskCmd    `cmd:"" help:"Show and change tasks."`
	Queue   queueCmd   `cmd:"" help:"Show, update, pause and purge queues."`
	Worker  workerCmd  `cmd:"" help:"Show workers, change them, or run one."`
	Pool    poolCmd    `cmd:"" help:"Keep the worker processes of a machine running, and show which are ready."`
	Tenant  tenantCmd  `cmd:"" help:"Show what each tenant has; for the tenant that hosts the coordinator."`
	Token   tokenCmd   `cmd:"" help:"Issue and revoke credentials."`
	Key     keyCmd     `cmd:"" help:"Show and rotate the keys that sign tokens."`
	Audit   auditCmd   `cmd:"" help:"Show what was done, and by whom."`
	Cert    certCmd    `cmd:"" help:"Create certificates for development."`
	Status  statusCmd  `cmd:"" help:"Show the state of the coordinator."`
	Bench   benchCmd   `cmd:"" help:"Measure a coordinator, and the machine under it."`
	Backup  backupCmd  `cmd:"" help:"Back up the store of a running coordinator."`
	Restore restoreCmd `cmd:"" help:"Restore a store from a backup."`
	Standby standbyCmd `cmd:"" help:"Keep a copy of a running coordinator's store, and put it in its place."`
	Compact compactCmd `cmd:"" help:"Shrink the file of a store while no coordinator runs."`
	Verify  verifyCmd  `cmd:"" help:"Check a store, while no coordinator runs, or a backup for damage."`
	Salvage salvageCmd `cmd:"" help:"Make a new store of everything in a damaged one that can be read."`
	Version versionCmd `cmd:"" help:"Show the version."`

	Completion completionCmd `cmd:"" help:"Show what makes the shell complete commands and flags."`
}

// envPrefix begins the names of all environment variables.
const envPrefix = "LESSOR"

const description = `Lessor hands out tasks under leases and keeps exactly one outcome for each.

A flag with an environment variable beside it can also be set by that, and in the file named by --config. The command
line wins over the environment, the environment over the file. A SIZE is in bytes, or has a unit: 65536, 512KiB, 1MiB, 2GB.

Exit codes: ` + exitCodes

// app has what every command needs.
type app struct {
	ctx     context.Context // ends with the first signal to stop; see catchSignals
	stopNow context.Context // ends with the second signal: stop at once
	json    bool
	flags   *kong.Node // what the parser of the arguments knows; nil: nothing
	streams
	log *logWriter // of a command that has a log; else nil
	// last gets the error with which the command ends, as a record of its log; nil: only people get
	// it. If alone is set, they do not.
	last  *slog.Logger
	alone bool
}

// strays returns what the caller should warn about: each environment variable that belongs to no
// flag of any command. Commands that run for long do: there it takes longest until somebody
// notices.
func (a *app) strays() []config.Stray {
	others := append(execworker.Variables(),
		readiness.VarPoolID, readiness.VarWorkerID, readiness.VarPoolURL, readiness.VarPoolToken,
		readiness.VarGPUDevice)
	// mostly this command has them all, and the parser of all commands need not be built
	if a.flags != nil && len(config.Strays(a.flags, envPrefix, others, os.Environ())) == 0 {
		return nil
	}
	all, err := newParser(&cli{}, a.streams)
	if err != nil {
		return nil // cannot happen: tests build this parser
	}
	return config.Strays(all.Model.Node, envPrefix, others, os.Environ())
}

func (a *app) warnStrays(log *slog.Logger) {
	for _, v := range a.strays() {
		log.Warn(strayText(v))
	}
}

func strayText(v config.Stray) string {
	if v.Similar == "" {
		return v.Name + " is set, but no flag has this environment variable"
	}
	return fmt.Sprintf("%s is set, but no flag has this environment variable; a similar one is %s", v.Name, v.Similar)
}

// run is the whole program. It returns the exit code.
func run(args []string, s streams) int {
	a := &app{ctx: context.Background(), stopNow: context.Background(), streams: s}
	return a.end(dispatch(args, a))
}

// end tells the user about err, and the log if there is one, and returns the exit code. A log that
// nobody takes holds up the end by stuckAfter.
func (a *app) end(err error) int {
	told := a.streams
	if a.last != nil && err != nil {
		record(a.last, explain(err))
		if a.alone {
			told.err = io.Discard
		}
	}
	code := report(told, err)
	a.log.flush(stuckAfter)
	return code
}

// record writes the error with which a command ends into its log.
func record(log *slog.Logger, f *failure) {
	if f.text == "" {
		return
	}
	attrs := []any{"error", f.text, "exit_code", f.code}
	if f.hint != "" {
		attrs = append(attrs, "hint", f.hint)
	}
	log.Error("ended by an error", attrs...)
}

// exited is the value of a panic that carries kong's request to exit, for example after --help, to
// run.
type exited int

// dispatch parses the arguments and runs the command that they name.
func dispatch(args []string, a *app) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil, exited:
		default:
			panic(v)
		}
	}()
	args = helpAsFlag(args)
	line, word, completes := lineToComplete(args)
	first := args
	if completes || mayHaveConfig(args) {
		first = nil
	}
	grammar := &cli{}
	parser, err := newParser(grammar, a.streams, first...)
	if err != nil {
		return fmt.Errorf("building the grammar: %w", err)
	}
	if completes {
		return completeLine(a.out, parser.Model.Node, line, word)
	}
	command, err := parser.Parse(args)
	// no command is named: show them
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && strings.HasPrefix(parse.Error(), "expected one of ") {
		parser.Stdout = a.err
		return cmp.Or(parse.Context.PrintUsage(false), error(&failure{code: exitUsage}))
	}
	if err != nil {
		return usageOf(err)
	}
	a.json, a.flags = grammar.JSON, parser.Model.Node
	chooseToken(command)
	return command.Run(a)
}

// newParser returns the parser of all commands; if the first arguments name one, of that command
// alone. All of them have hundreds of flags, which take longer to build than most commands run.
func newParser(grammar *cli, s streams, first ...string) (*kong.Kong, error) {
	var others []string
	for in := reflect.TypeOf(grammar).Elem(); len(first) > 0; first = first[1:] {
		var named reflect.Type
		var beside []string
		for field := range in.Fields() {
			switch _, command := field.Tag.Lookup("cmd"); {
			case command && strings.ToLower(field.Name) == first[0]:
				named = field.Type
			case command:
				beside = append(beside, "^"+in.Name()+`\.`+field.Name+"$")
			}
		}
		if named == nil {
			break
		}
		others, in = append(others, beside...), named
	}
	return kong.New(grammar, append(options(s), kong.IgnoreFields(others...))...)
}

// mayHaveConfig reports whether a configuration file may be read, which has the flags of all
// commands.
func mayHaveConfig(args []string) bool {
	return os.Getenv("LESSOR_CONFIG") != "" ||
		slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--config") })
}

// helpAsFlag turns "help COMMAND", which other programs have, into "COMMAND --help".
func helpAsFlag(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// flagGroup makes --help show a command's own flags first, because they are few, and the flags of
// all commands or all clients are many.
func flagGroup(parent kong.Visitable, flag *kong.Flag) *kong.Group {
	_, ofAll := parent.(*kong.Application)
	switch {
	case flag.Tag.Has("shared"):
		return &kong.Group{Key: "connection", Title: "Connection and credentials:"}
	case ofAll:
		return &kong.Group{Key: "all", Title: "Flags of every command:"}
	}
	return nil
}

// flagHelp adds the default to the help of a flag whose placeholder hides it.
func flagHelp(v *kong.Value) string {
	shown := *v
	if v.Flag != nil && v.Flag.PlaceHolder != "" && v.Default != "" {
		shown.Help = fmt.Sprintf("%s (default %s).", strings.TrimSuffix(v.Help, "."), v.Default)
	}
	return kong.DefaultHelpValueFormatter(&shown)
}

func options(s streams) []kong.Option {
	return append(mappers(),
		kong.Name("lessor"),
		kong.Description(description),
		kong.Writers(s.out, s.err),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ValueFormatter(flagHelp),
		kong.AutoGroup(flagGroup),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		config.Environment(envPrefix),
	)
}
