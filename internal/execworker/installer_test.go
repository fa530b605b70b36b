package execworker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/lessor-dev/lessor/worker"
)

// installer returns an installer that runs a shell script, and what it logs.
func installer(script string) (Installer, *bytes.Buffer) {
	log := &bytes.Buffer{}
	handler := slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	return Installer{Command: Command{"sh", "-c", script}, Log: slog.New(handler)}, log
}

var foo = worker.Package{Name: "foo", Version: "1"}

// The command finds what it has to do in its environment, and does not find the credentials of the
// worker. What it prints is logged.
func TestInstallerGetsVariablesOfThePackage(t *testing.T) {
	t.Attr("rules", "W13")
	t.Setenv("LESSOR_TOKEN", "secret")
	t.Setenv("LESSOR_PACKAGE_SOURCE", "of the worker itself")
	i, log := installer(`echo $LESSOR_PACKAGE_ACTION,$LESSOR_PACKAGE_NAME,$LESSOR_PACKAGE_VERSION,$LESSOR_PACKAGE_SOURCE,$LESSOR_PACKAGE_SHA256,$LESSOR_OPERATION_ID$LESSOR_TOKEN; printf left >&2`)
	for want, err := range map[string]error{
		"install,foo,1,url,00ff,op1": i.Install(t.Context(), worker.PackageInstall{Package: foo, OperationID: "op1", Source: "url", SHA256: "00ff"}),
		"uninstall,foo,1,,,op2":      i.Uninstall(t.Context(), worker.PackageUninstall{Package: foo, OperationID: "op2"}),
	} {
		if line := "msg=installer package=foo@1 stdout=" + want + "\n"; err != nil || !strings.Contains(log.String(), line) {
			t.Errorf("got %v, and the log\n%swant %s", err, log, line)
		}
	}
	if want := "msg=installer package=foo@1 stderr=left\n"; strings.Count(log.String(), want) != 2 {
		t.Errorf("the log is\n%swant twice %s", log, want)
	}
}

// The exit code decides on the code of the operation; the last lines of standard error become the
// detail, as many as fit.
func TestInstallerFails(t *testing.T) {
	t.Attr("rules", "W13")
	for script, test := range map[string]struct {
		kind error
		text string
	}{
		"echo a >&2; echo b >&2; exit 65":       {worker.ErrPackageInvalid, "exit status 65: a\nb"},
		"exit 66":                               {worker.ErrPackageInvalid, "exit status 66"},
		"echo no >&2; exit 77":                  {worker.ErrPackagePermission, "exit status 77: no"},
		"echo out; exit 1":                      {nil, "exit status 1"},
		"kill -KILL $$":                         {nil, "signal: killed"},
		`printf '%01100d\nabc\n' 1 >&2; exit 2`: {nil, "exit status 2: abc"},
		`printf '%01100d' 1 >&2; exit 2`: {
			nil,
			"exit status 2: " + strings.Repeat("0", 1<<10-len("exit status 2: ")-1) + "1",
		},
		`printf 'x\n%0504d\n%0504d' 1 1 >&2; exit 2`: {
			nil,
			"exit status 2: " + strings.Repeat("0", 503) + "1\n" + strings.Repeat("0", 503) + "1",
		},
		`i=0; while [ $i -lt 520 ]; do printf 'é' >&2; i=$((i+1)); done; exit 2`: {
			nil,
			"exit status 2: " + strings.Repeat("é", 504),
		},
	} {
		i, _ := installer(script)
		err := i.Install(t.Context(), worker.PackageInstall{Package: foo})
		if err == nil || err.Error() != test.text {
			t.Errorf("%s: got %.300v, want %.300q", script, err, test.text)
		}
		for _, kind := range []error{worker.ErrPackageInvalid, worker.ErrPackagePermission} {
			if errors.Is(err, kind) != errors.Is(test.kind, kind) {
				t.Errorf("%s: got %v, want the kind %v", script, err, test.kind)
			}
		}
	}
	i := Installer{Command: Command{"no-such-program-anywhere"}, Log: slog.New(slog.DiscardHandler)}
	if err := i.Uninstall(t.Context(), worker.PackageUninstall{Package: foo}); err == nil || !strings.Contains(err.Error(), "no-such-program-anywhere") {
		t.Errorf("got %v, want an error that names the program", err)
	}
}

// A command is told to stop when the worker stops, or its time is over, and then even exit code 0
// is a failure. A second signal kills the command at once. Nothing in its process group is left
// behind, and the operator sees how far it was.
func TestInstallerStops(t *testing.T) {
	t.Attr("rules", "W13")
	for name, test := range map[string]struct {
		stop error // nil: a second signal
		want string
	}{
		"drain": {&worker.StopError{Err: worker.ErrDraining}, "worker is draining; the command was stopped: exit status 0: step 1"},
		"limit": {errors.New("time is over"), "time is over; the command was stopped: exit status 0: step 1"},
		"kill":  {nil, "the worker was told to stop at once; the command was stopped: signal: killed: step 1"},
	} {
		t.Run(name, func(t *testing.T) {
			fifo := t.TempDir() + "/fifo"
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("FIFO", fifo)
			i, _ := installer(`exec 3> "$FIFO"; sleep 1000 & trap 'exit 0' TERM; echo step 1 >&2; exec 2> /dev/null; echo begun >&3; while :; do sleep 0.02; done`)
			kill := make(chan struct{})
			i.Kill = kill
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			ended := make(chan error, 1)
			go func() { ended <- i.Install(ctx, worker.PackageInstall{Package: foo}) }()
			processes, err := os.Open(fifo)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = processes.Close() }()
			if _, err := io.ReadFull(processes, make([]byte, len("begun\n"))); err != nil {
				t.Fatal(err)
			}
			if test.stop == nil {
				close(kill)
			} else {
				stop(test.stop)
			}
			if err := <-ended; err == nil || err.Error() != test.want || test.stop != nil && !errors.Is(err, test.stop) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			// ends when the last process has ended; if one lives on, the test does not end
			if _, err := io.ReadAll(processes); err != nil {
				t.Error(err)
			}
		})
	}
}
