package execworker

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lessor-dev/lessor/worker"
)

// TestExitCodesMapToCategories runs real commands, because an os.ProcessState cannot be made
// otherwise.
func TestExitCodesMapToCategories(t *testing.T) {
	for script, want := range map[string]worker.Category{
		"exit 1":        worker.UserCode,
		"exit 64":       worker.Configuration,
		"exit 65":       worker.DataQuality,
		"exit 66":       worker.DataQuality,
		"exit 69":       worker.Infrastructure,
		"exit 75":       worker.Infrastructure,
		"exit 77":       worker.Configuration,
		"exit 78":       worker.Configuration,
		"exit 124":      worker.Timeout,
		"exit 126":      worker.Configuration,
		"exit 127":      worker.Configuration,
		"exit 128":      worker.UserCode,
		"exit 129":      worker.Infrastructure, // the shell's code for a child that SIGHUP ended
		"exit 137":      worker.Infrastructure, // the same for SIGKILL
		"exit 139":      worker.UserCode,       // the same for SIGSEGV
		"exit 255":      worker.UserCode,
		"kill -KILL $$": worker.Infrastructure, // what the kernel's OOM killer does
		"kill -TERM $$": worker.Infrastructure,
		"kill -SEGV $$": worker.UserCode,
	} {
		cmd := exec.Command("sh", "-c", script)
		if err := cmd.Run(); err == nil {
			t.Fatalf("%q succeeded", script)
		}
		if got := categoryOf(cmd.ProcessState); got != want {
			t.Errorf("%q: got %v, want %v", script, got, want)
		}
	}
}

func TestStartFailuresMapToCategories(t *testing.T) {
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("neither a program nor a script"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args Command
		want worker.Category
	}{
		{Command{"no-such-program-anywhere"}, worker.Configuration},
		{Command{t.TempDir()}, worker.Configuration},                          // EACCES
		{Command{garbage}, worker.Configuration},                              // ENOEXEC
		{Command{"sh", "-c", strings.Repeat("x", 1<<20)}, worker.DataQuality}, // E2BIG
		{Command{"sh", "-c", ":", "a line with a \x00"}, worker.DataQuality},  // EINVAL
	} {
		startErr := exec.Command(test.args[0], test.args[1:]...).Start()
		if got := categoryOfStart(startErr); got != test.want {
			t.Errorf("%.40q: %v: got %v, want %v", test.args, startErr, got, test.want)
		}
	}
	if got := categoryOfStart(syscall.EAGAIN); got != worker.Infrastructure {
		t.Errorf("EAGAIN: got %v, want INFRASTRUCTURE", got)
	}
}

// A machine has no room for a command if it has reached a limit of processes, memory or open files:
// the limits of the user and those of the whole machine. A command that cannot be started for
// another reason does not wait for room.
func TestNoRoom(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if err := startFailure("true", os.NewSyscallError("fork", errno)); !noRoom(err) {
			t.Errorf("%v: want that the command waits for room", err)
		}
	}
	if err := startFailure("true", os.NewSyscallError("fork", syscall.ENOENT)); noRoom(err) {
		t.Errorf("%v: want that the command fails", err)
	}
}

func TestFailureNamesTheExitAndTheLastLine(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 3")
	_ = cmd.Run()
	for stderr, want := range map[string]string{
		"":                        "exit status 3",
		"looking\nno such user\n": "exit status 3: no such user",
	} {
		got := exitFailure(cmd.ProcessState, &tail{buf: []byte(stderr)}).Error()
		if code, exited := ExitCode(got); got != want || code != 3 || !exited {
			t.Errorf("got %q with exit code %d (%t), want %q with 3", got, code, exited, want)
		}
	}
	for _, message := range []string{"", "signal: killed", "cannot start: exit status 3", "exit status x", "exit status"} {
		if code, exited := ExitCode(message); exited {
			t.Errorf("%q: exit code %d, want none", message, code)
		}
	}
}
