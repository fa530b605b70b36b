package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that has exited does not keep its group alive, although nobody has asked for its exit
// code: in a container perhaps nobody ever does.
func TestGroupOfExitedProcessesHasEnded(t *testing.T) {
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends
	defer runtime.UnlockOSThread()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "c) Z 1 1 (x") // the name of a program may look like the state that follows it
	if err := os.Symlink(cat, odd); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: odd, Args: []string{"cat"}}
	cmd.SysProcAttr = ownGroup()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &Group{id: cmd.Process.Pid, exited: make(chan struct{})}
	close(g.exited)
	if g.Ended() {
		t.Error("the group has ended while its process runs")
	}
	_ = in.Close() // cat exits
	for !g.Ended() {
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(-g.id, 0); err != nil { // the exited process is still there
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A program has no terminal: it leads a session. In the session of this process, the kernel would
// stop it as soon as it asks the terminal for something.
func TestProcessHasASessionOfItsOwn(t *testing.T) {
	p, stdout, _ := shell(`read pid name state parent group session rest < /proc/$$/stat; echo "$session $$"`)
	if state, err := p.Run(); err != nil || !state.Success() {
		t.Fatalf("state %v, error %v, want success", state, err)
	}
	if session, pid, _ := strings.Cut(strings.TrimSpace(stdout.String()), " "); session != pid {
		t.Errorf("process %s is in the session %s, want its own", pid, session)
	}
}

// A program does not outlive its parent, however the parent ends: otherwise a task would run a
// second time beside it, once its lease is lost.
func TestProcessDiesWithItsParent(t *testing.T) {
	if os.Getenv("PARENT") != "" { // this process is the parent
		p, _, _ := shell("exec 3> $FIFO; echo up >&3; exec sleep 1000")
		_, err := p.Run()
		t.Fatal(err) // not reached
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestProcessDiesWithItsParent$")
	parent.Env = append(os.Environ(), "PARENT=1", "FIFO="+fifo)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Close() }()
	if _, err := io.ReadFull(child, make([]byte, len("up\n"))); err != nil {
		t.Error(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = parent.Wait()
	if _, err := io.ReadAll(child); err != nil { // ends with the program; if it lives on, the test does not end
		t.Error(err)
	}
}

// The first process of a container inherits what a program leaves behind. Nobody else would ask for
// the exit codes, and the process ids would run out. A subreaper inherits in the same way.
func TestInheritedProcessesAreReaped(t *testing.T) {
	setSubreaper(t, 1)
	defer setSubreaper(t, 0)
	p, stdout, _ := shell("sleep 1000 & (sleep 1000 & sleep 1000) & echo $$")
	if _, err := p.Run(); err != nil {
		t.Fatal(err)
	}
	group, err := strconv.Atoi(strings.TrimSpace(stdout.String()))
	if err != nil {
		t.Fatal(err)
	}
	for !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) { // if they stay, the test does not end
		time.Sleep(time.Millisecond)
	}
}

// setSubreaper says whether this process inherits the orphans among its descendants.
func setSubreaper(t *testing.T, on uintptr) {
	t.Helper()
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, on, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// A process that finds no room for its second pipe closes the first one: there would never be room
// for it again.
func TestProcessWithoutRoomLeavesNoPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	last := max(r.Fd(), w.Fd())
	if err := errors.Join(r.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(last) + 1, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	p, _, _ := shell("cat")
	p.Stdin = []byte("x")
	if state, err := p.Run(); state != nil || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("state %v, error %v, want %v", state, err, syscall.EMFILE)
	}
	r, w, err = os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(r.Close(), w.Close())
}
