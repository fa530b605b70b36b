package execworker

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Go gives a command its files by numbers above the highest one that it inherits. If that is the last one that a process may have, the kernel says "bad file
// descriptor", although there are only too many open files.
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

// limitFiles keeps this process from opening files with the number limit and above, until restore is called.
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

// A process that finds no room for its second pipe closes the first one: there would never be room for it again.
func TestProcessWithoutRoomLeavesNoPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	last := max(r.Fd(), w.Fd())
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	defer limitFiles(t, uint64(last)+1)()
	p, _, _ := shell("cat")
	p.stdin = []byte("x")
	if state, err := p.run(); state != nil || !noRoom(err) {
		t.Errorf("state %v, error %v, want that there is no room", state, err)
	}
	r, w, err = os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(r.Close(), w.Close())
}
