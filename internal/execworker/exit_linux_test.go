package execworker

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Go gives a command its files by numbers above the highest one that it inherits. If that is the last one that a process may have, the kernel says "bad file
// descriptor", although there are only too many open files.
func TestNoRoomAboveTheLastFile(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	const limit = 200
	less := before
	less.Cur = limit
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &less); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
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
