package execworker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lessor-dev/lessor/internal/process"
	"github.com/lessor-dev/lessor/worker"
)

// Installer runs a command for each package that an operator wants installed or removed. It is a
// worker.Installer. The command gets its task in its environment (see packageVariables). Exit code
// 0 means that it is done; see errorOfExit for the others.
type Installer struct {
	// Command to run. Required.
	Command Command
	// Log gets what the command prints, line by line. Required.
	Log *slog.Logger
	// Kill, when closed, ends the command at once. Nil: never.
	Kill <-chan struct{}
}

// errorOfExit has the errors of exit codes, those of sysexits.h. Any other code is E.INTERNAL.
var errorOfExit = map[int]error{
	65: worker.ErrPackageInvalid,    // EX_DATAERR: it is not what it should be
	66: worker.ErrPackageInvalid,    // EX_NOINPUT: there is no such package
	77: worker.ErrPackagePermission, // EX_NOPERM: not permitted
}

// maxDetail is how much of an error the worker tells, in bytes.
const maxDetail = 1 << 10

// Install runs the command to install a package.
func (i Installer) Install(ctx context.Context, p worker.PackageInstall) error {
	return i.run(ctx, p.Package, packageVariables("install", p))
}

// Uninstall runs the command to remove a package.
func (i Installer) Uninstall(ctx context.Context, p worker.PackageUninstall) error {
	return i.run(ctx, p.Package, packageVariables("uninstall",
		worker.PackageInstall{Package: p.Package, OperationID: p.OperationID}))
}

// packageVariables returns the variables in which the command finds what it has to do.
func packageVariables(action string, p worker.PackageInstall) []string {
	return []string{
		"LESSOR_PACKAGE_ACTION=" + action,
		"LESSOR_PACKAGE_NAME=" + p.Name,
		"LESSOR_PACKAGE_VERSION=" + p.Version,
		"LESSOR_PACKAGE_SOURCE=" + p.Source,
		"LESSOR_PACKAGE_SHA256=" + p.SHA256,
		"LESSOR_OPERATION_ID=" + p.OperationID,
	}
}

// run runs the command. As with tasks, exit code 0 does not count if the command was told to stop.
func (i Installer) run(ctx context.Context, pkg worker.Package, variables []string) error {
	log := i.Log.With("package", pkg.String())
	last := &tail{}
	out, errs := &lineWriter{to: logWriter{log, "stdout"}}, &lineWriter{to: logWriter{log, "stderr"}}
	defer out.flush()
	defer errs.flush()
	told := false
	p := &process.Process{
		Args:   i.Command,
		Env:    slices.Concat(ownEnvironment(), variables),
		Stdout: out,
		Stderr: io.MultiWriter(last, errs),
		Stops: func(g *process.Group) {
			told = stopGroup(ctx, i.Kill, g, func(error) (time.Duration, <-chan struct{}) { return stopTimeout, nil })
		},
	}
	state, err := p.Run()
	switch {
	case state == nil:
		return fmt.Errorf("cannot run %q: %w", i.Command[0], err)
	case told:
		cause := cmp.Or(context.Cause(ctx), errors.New("the worker was told to stop at once"))
		return packageError(stopped(cause, state).Error(), last, cause)
	case state.Success():
		return err // what was printed is not complete
	}
	return packageError(state.String(), last, errorOfExit[state.ExitCode()])
}

// packageError returns the error of a command that has failed: how it ended, and the last lines of
// its standard error.
func packageError(text string, stderr *tail, kind error) error {
	if lines := stderr.lastLines(maxDetail - len(text) - len(": ")); lines != "" {
		text += ": " + lines
	}
	return exitError{text, kind}
}

// exitError is the failure of the command of an Installer.
type exitError struct {
	text string
	kind error // what kind of failure it is; may be nil
}

func (e exitError) Error() string { return e.text }

func (e exitError) Unwrap() error { return e.kind }

// logWriter writes lines to a log.
type logWriter struct {
	log    *slog.Logger
	stream string
}

// Write logs whole lines, and never fails.
func (l logWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.log.Info("installer", l.stream, strings.ToValidUTF8(string(bytes.TrimRight(line, "\r\n")), "\uFFFD"))
	}
	return len(p), nil
}
