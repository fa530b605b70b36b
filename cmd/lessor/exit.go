package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/config"
)

// Exit codes. They are decided here and nowhere else, and are part of the interface: docs/cli.md
// lists them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 3
	exitNotFound    = 4
	exitCannotStart = 5
	exitStore       = 70
	exitTimeout     = 124 // that of timeout(1)
)

const exitCodes = `0 done; 1 refused, a task or a worker failed, a store has findings, or something of it was left out; 2 wrong arguments or
configuration; 3 coordinator unreachable or overloaded, or workers too slow, a repeat may help; 4 no such task, queue, worker or
pool; 5 a port, the data directory, the spool or the token of the pools cannot be used; 70 the store failed while serving;
124 the timeout of a wait is over; 128 + n stopped by signal n.`

// failure is an error with everything that the user sees of it.
type failure struct {
	code int
	text string // one line, lower case; several for several bad fields
	hint string // what to do about it; may be empty
	// cause is the error that the format wraps with %w, if any.
	cause error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.cause }

func fail(code int, hint, format string, args ...any) *failure {
	err := fmt.Errorf(format, args...)
	return &failure{code: code, text: err.Error(), hint: hint, cause: errors.Unwrap(err)}
}

// report tells the user about err and returns the exit code.
func report(s streams, err error) int {
	if err == nil {
		return exitOK
	}
	f := explain(err)
	for line := range strings.SplitSeq(f.text, "\n") {
		if line != "" {
			s.note("error: %s", line)
		}
	}
	if f.hint != "" {
		s.note("hint: %s", f.hint)
	}
	return f.code
}

// explain returns the text and the exit code for any error.
func explain(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if interrupted, ok := errors.AsType[*interruptedError](err); ok {
		return fail(interrupted.exitCode(), "", "%v", interrupted)
	}
	if errors.Is(err, syscall.EPIPE) {
		// the program that reads the output has closed it
		return &failure{code: (&interruptedError{signal: syscall.SIGPIPE}).exitCode()}
	}
	if f := explainStatus(err); f != nil {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitUnavailable, "", "no answer in time")
	}
	return fail(exitFailed, "", "%v", err)
}

// hintConfig says what a configuration file has to those who have only the program.
const hintConfig = "--config or $LESSOR_CONFIG names this file; its keys are the flags that lessor COMMAND --help shows, such as addr: HOST:PORT and serve: {data: DIR}"

// usageOf explains an error of parsing the arguments, the environment or the configuration file.
func usageOf(err error) error {
	if broken, ok := errors.AsType[*config.Error](err); ok {
		return fail(exitUsage, hintConfig, "%v", broken)
	}
	// the text of --help or --version
	if written, ok := errors.AsType[*fs.PathError](err); ok && written.Op == "write" {
		return written
	}
	// kong's word is for programmers
	text, help, node := strings.Replace(err.Error(), "(from envar ", "(from ", 1), "lessor --help", (*kong.Node)(nil)
	if parse, ok := errors.AsType[*kong.ParseError](err); ok {
		if node = parse.Context.Selected(); node != nil {
			help = "lessor " + strings.TrimPrefix(node.FullPath(), "lessor ") + " --help"
		} else {
			node = parse.Context.Model.Node
		}
	}
	hint := "see " + help
	if node != nil && !node.Leaf() { // a command is missing, or is none
		text = strings.Replace(text, "unexpected argument ", "unknown command ", 1)
		if flag := misplaced(node, text); flag != "" {
			hint = "write it after the command: lessor COMMAND " + flag
		}
	}
	return fail(exitUsage, hint, "%s", text)
}

// misplaced returns the flag that a command has, and that was not found because it is in front of
// its command; "" if the text of the error names no such flag.
func misplaced(node *kong.Node, text string) string {
	_, name, _ := strings.Cut(text, "unknown flag ")
	name, _, _ = strings.Cut(name, ",")
	for _, command := range node.Leaves(true) {
		for _, flag := range command.Flags {
			if "--"+flag.Name == name {
				return name
			}
		}
	}
	return ""
}
