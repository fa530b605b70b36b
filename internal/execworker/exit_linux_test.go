package execworker

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Go gives a command its files by numbers above the highest one that it inherits. If that is the
// last one that a process may have, the kernel says "bad file descriptor", although there are only
// too many open files.
func TestNoRoomAboveTheLastFile(t *testing.T) {
	const limit = 200
	defer limitFiles(t, limit)()
	if err := syscall.Dup3(int(os.Stderr.Fd()), limit-1, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	cmd.Stdout = os.NewFile(limit-1, "last")
	defer func() { _ = cmd.Stdout.(*os.File).Close() }()
	if err := cmd.Run(); !noRoom(err) {
		t.Errorf("error %v, want one that means that there is no room", err)
	}
}

// limitFiles keeps this process from opening files with the number limit and above, until restore
// is called.
func limitFiles(t *testing.T, limit uint64) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	less := before
	less.Cur = limit
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &less); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}
