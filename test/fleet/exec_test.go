//go:build faults

package fleet

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

// TestExecWorkerKilled: of two processes of lessor worker run, which start a shell for each task,
// one is killed. Every task is committed exactly once, and no attempt is started twice (A1, A2,
// A5).
func TestExecWorkerKilled(t *testing.T) {
	const tasks, mayEnd, slots = 300, 20, 4
	f := newFleet(t, tasks, shortTTL)
	log := filepath.Join(t.TempDir(), "starts")
	bell, leave := newPipe(t, "bell"), newPipe(t, "leave")
	leave.write(strings.Repeat("\n", mayEnd)) // this many commands of the victim may end
	first := f.startExecWorker(victim, slots, log, "echo > "+bell.path+"; read leave < "+leave.path)
	// all that it can begin, however slow the machine is; only then may the other worker take the
	// rest
	bell.read(mayEnd + slots)
	second := f.startExecWorker(survivor, slots, log, "echo > "+bell.path+"; sleep 0.02")
	bell.read(1)
	first.Kill()
	f.work.AwaitDone()
	f.end(second)
	f.count()
	starts := f.countStarts(log)
	t.Logf("%d tasks, counted after a restart of the coordinator: %s", tasks, f)
	t.Logf("the commands wrote %d starts, of which the fault cut %d off", len(starts), f.cutOff(starts))
}

// startExecWorker starts a worker whose commands write their start to a log and then do work.
func (f *fleet) startExecWorker(name string, slots int, log, work string) *harness.Process {
	f.t.Helper()
	script := `echo "$LESSOR_TASK_ID $LESSOR_ATTEMPT" >> "$0"; ` + work
	return harness.Start(f.t, harness.Command{
		Args: []string{
			"worker", "run", "--addr", f.c.Addr(), "--queue", queue, "--name", name, "-j", fmt.Sprint(slots),
			"--", "sh", "-c", script, log,
		},
		Env: []string{"HOME=" + f.t.TempDir()},
	})
}

// pipe is a named pipe between the test and commands. Both of its ends are open here, so that
// reading never ends.
type pipe struct {
	t    *testing.T
	path string
	file *os.File
}

func newPipe(t *testing.T, name string) *pipe {
	t.Helper()
	p := &pipe{t: t, path: filepath.Join(t.TempDir(), name)}
	err := syscall.Mkfifo(p.path, 0o600)
	if err == nil {
		p.file, err = os.OpenFile(p.path, os.O_RDWR, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.file.Close() })
	return p
}

func (p *pipe) write(text string) {
	p.t.Helper()
	if _, err := p.file.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// read waits for n more bytes.
func (p *pipe) read(n int) {
	p.t.Helper()
	err := p.file.SetReadDeadline(time.Now().Add(harness.Patience))
	if err == nil {
		_, err = io.ReadFull(p.file, make([]byte, n))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// countStarts compares what the commands wrote with what the coordinator stores: each attempt was
// begun at most once, and each completed one was begun.
func (f *fleet) countStarts(log string) map[attempt]int {
	f.t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		f.t.Fatal(err)
	}
	starts := map[attempt]int{}
	for line := range strings.Lines(string(data)) {
		var a attempt
		if _, err := fmt.Sscan(line, &a.task, &a.number); err != nil {
			f.t.Fatalf("a command wrote %q", line)
		}
		if starts[a]++; starts[a] > 1 {
			f.t.Errorf("A2: attempt %v was begun %d times", a, starts[a])
		}
	}
	for a := range f.completedBy {
		if starts[a] != 1 {
			f.t.Errorf("attempt %v was completed, and begun %d times", a, starts[a])
		}
	}
	return starts
}
