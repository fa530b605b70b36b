package execworker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/lessor-dev/lessor/worker"
)

// categoryOfExit has the category of a failure by exit code: those of sysexits.h, and those of
// shells, env and timeout. Any other code is USER_CODE.
var categoryOfExit = map[int]worker.Category{
	64:  worker.Configuration,  // EX_USAGE: the command line is wrong
	65:  worker.DataQuality,    // EX_DATAERR: the input is wrong
	66:  worker.DataQuality,    // EX_NOINPUT: the input is missing
	67:  worker.DataQuality,    // EX_NOUSER: addressee unknown
	68:  worker.Infrastructure, // EX_NOHOST: host unknown
	69:  worker.Infrastructure, // EX_UNAVAILABLE: a service is unavailable
	70:  worker.UserCode,       // EX_SOFTWARE: an internal error
	71:  worker.Infrastructure, // EX_OSERR: the system failed, for example to fork
	72:  worker.Configuration,  // EX_OSFILE: a system file is missing
	73:  worker.Configuration,  // EX_CANTCREAT: the output cannot be created
	74:  worker.Infrastructure, // EX_IOERR: input or output failed
	75:  worker.Infrastructure, // EX_TEMPFAIL: try again later
	76:  worker.Infrastructure, // EX_PROTOCOL: the other side broke the protocol
	77:  worker.Configuration,  // EX_NOPERM: not permitted
	78:  worker.Configuration,  // EX_CONFIG: configuration is wrong
	124: worker.Timeout,        // timeout(1)
	126: worker.Configuration,  // found, but not executable
	127: worker.Configuration,  // not found
}

// ownFaults are the signals that a program causes itself. Other signals come from outside, for
// example from the OOM killer.
var ownFaults = map[syscall.Signal]bool{
	syscall.SIGILL: true, syscall.SIGTRAP: true, syscall.SIGABRT: true, syscall.SIGBUS: true,
	syscall.SIGFPE: true, syscall.SIGSEGV: true, syscall.SIGPIPE: true, syscall.SIGSYS: true,
}

// shellSignal is what shells add to the number of the signal that killed a command.
const shellSignal = 128

// exitFailure returns the error of a command that ended with state, or nil if it succeeded. The
// message has the last line of standard error, which says more than the code. The stack has the end
// of standard error, which may help to find the cause.
func exitFailure(state *os.ProcessState, stderr *tail) error {
	if state.Success() {
		return nil
	}
	message := state.String()
	if last := stderr.lastLine(); last != "" {
		message += ": " + last
	}
	return worker.WithStack(string(stderr.buf), worker.WithCategory(categoryOf(state), errors.New(message)))
}

// ExitCode returns the exit code that the message of such an error begins with. exited is false for
// another error, such as that of a killed command.
func ExitCode(message string) (code int, exited bool) {
	text, _, _ := strings.Cut(message, ":")
	number, found := strings.CutPrefix(text, "exit status ") // of os.ProcessState
	code, err := strconv.Atoi(number)
	return code, found && err == nil
}

func categoryOf(state *os.ProcessState) worker.Category {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		return categoryOfSignal(status.Signal())
	case state.ExitCode() > shellSignal:
		return categoryOfSignal(syscall.Signal(state.ExitCode() - shellSignal))
	}
	if category, known := categoryOfExit[state.ExitCode()]; known {
		return category
	}
	return worker.UserCode
}

func categoryOfSignal(s syscall.Signal) worker.Category {
	const lastSignal = 64
	if ownFaults[s] || s > lastSignal {
		return worker.UserCode
	}
	return worker.Infrastructure
}

// startFailure returns the error of a command that could not be started.
func startFailure(program string, err error) error {
	return worker.WithCategory(categoryOfStart(err), fmt.Errorf("cannot run %q: %w", program, err))
}

func categoryOfStart(err error) worker.Category {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission),
		errors.Is(err, syscall.ENOEXEC):
		return worker.Configuration
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EINVAL):
		return worker.DataQuality // too long for an argument, or with a NUL in it
	}
	return worker.Infrastructure
}

// noRoom reports whether a command could not be started because there are too many processes,
// threads or open files, or too little memory. The last error means that Go has found no number for
// a file above those that the command inherits.
func noRoom(err error) bool {
	return slices.ContainsFunc([]error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EBADF}, func(full error) bool {
		return errors.Is(err, full)
	})
}
