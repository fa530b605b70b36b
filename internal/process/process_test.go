package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell returns a process that runs a script. Its PipeDelay is an hour: if something keeps the
// output open, the test hangs instead of passing.
func shell(script string) (p *Process, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &Process{Args: []string{"sh", "-c", script}, Stdout: stdout, Stderr: stderr, PipeDelay: time.Hour}, stdout, stderr
}

func TestProcessConnectsTheThreeStreams(t *testing.T) {
	p, stdout, stderr := shell("cat; echo $GREETING; echo oops >&2")
	p.Stdin, p.Env = []byte("input\n"), []string{"GREETING=hello", "PATH=/bin:/usr/bin"}
	state, err := p.Run()
	if err != nil || !state.Success() {
		t.Fatal(state, err)
	}
	if stdout.String() != "input\nhello\n" || stderr.String() != "oops\n" {
		t.Errorf("stdout %q, stderr %q, want input and hello in stdout, oops in stderr", stdout, stderr)
	}
}

// The input may be as short as one byte.
func TestShortestInputReachesTheProcess(t *testing.T) {
	p, stdout, _ := shell("cat")
	p.Stdin = []byte("x")
	if state, err := p.Run(); err != nil || !state.Success() || stdout.String() != "x" {
		t.Errorf("state %v, error %v, stdout %q, want success and the input", state, err, stdout)
	}
}

func TestProcessNeedNotReadItsInput(t *testing.T) {
	p, stdout, _ := shell("echo done")
	p.Stdin = bytes.Repeat([]byte("x"), 1<<20) // more than the buffer of a pipe, so that the write blocks
	state, err := p.Run()
	if err != nil || !state.Success() || stdout.String() != "done\n" {
		t.Errorf("state %v, error %v, stdout %q, want success and stdout \"done\\n\"", state, err, stdout)
	}
}

// A process without input must not read what this process has as standard input.
func TestProcessWithoutInputReadsNone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(name, []byte("input of the parent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func(before *os.File) { os.Stdin = before; _ = input.Close() }(os.Stdin)
	os.Stdin = input
	p, stdout, _ := shell("cat; echo end")
	if _, err := p.Run(); err != nil || stdout.String() != "end\n" {
		t.Errorf("error %v, stdout %q, want the end of the input at once and stdout \"end\\n\"", err, stdout)
	}
}

// The background process keeps standard output open. If it was not killed with its group, Run would
// wait for it.
func TestProcessGroupIsKilledWhenItsLeaderEnds(t *testing.T) {
	p, stdout, _ := shell("sleep 1000 & echo begun")
	state, err := p.Run()
	if err != nil || !state.Success() || stdout.String() != "begun\n" {
		t.Errorf("state %v, error %v, stdout %q, want success and stdout \"begun\\n\"", state, err, stdout)
	}
}

// The shell's child must get the signal, too. Otherwise it would keep standard output open, and Run
// would wait for it.
func TestSignalsReachTheWholeGroup(t *testing.T) {
	p, _, _ := shell("sleep 1000; echo not reached")
	p.Stops = func(g *Group) {
		g.Signal(syscall.SIGTERM)
		<-g.Exited()
	}
	state, err := p.Run()
	if err != nil || state.String() != "signal: terminated" {
		t.Errorf("state %v, error %v, want signal: terminated and no error", state, err)
	}
}

// A process that has left the group is not killed with it, and keeps standard output open until the
// test lets it end. Run waits for it only for the PipeDelay.
func TestProcessThatLeftItsGroupDoesNotHoldUpTheOutput(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, stdout, _ := shell("setsid sh -c 'echo left > $FIFO; read end < $FIFO' & read left < $FIFO")
	p.Env = append(os.Environ(), "FIFO="+fifo)
	p.PipeDelay = time.Millisecond
	state, err := p.Run()
	if err != nil || !state.Success() {
		t.Errorf("state %v, error %v, stdout %q, want success", state, err, stdout)
	}
	if err := os.WriteFile(fifo, []byte("end\n"), 0); err != nil { // ends the process
		t.Error(err)
	}
}

// refilling is a sink that writes as much to a pipe as it takes from it, as a process that goes on
// printing does.
type refilling struct {
	pipe  *os.File
	taken int
}

func (r *refilling) Write(p []byte) (int, error) {
	r.taken += len(p)
	return r.pipe.Write(p)
}

// What a pipe may have held when its program ended is copied, and no more, even if a process that
// left the group goes on printing.
func TestRestOfAPipeIsBounded(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(r.Close(), w.Close()) }()
	if _, err := w.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	sink := &refilling{pipe: w}
	if err := copyRest(sink, r); err != nil || sink.taken < maxPipe || sink.taken > 2*maxPipe {
		t.Errorf("copied %d bytes, error %v, want about %d", sink.taken, err, maxPipe)
	}
}

// All that a pipe holds is copied, to the last byte, or there is an error: a part of an output must
// not be taken for all of it.
func TestRestOfAPipeIsComplete(t *testing.T) {
	const rest = 32<<10 + 1
	for _, sink := range []io.Writer{&bytes.Buffer{}, &brokenSink{room: rest - 1}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, rest)); err != nil {
			t.Fatal(err)
		}
		err = copyRest(sink, r)
		if buffer, ok := sink.(*bytes.Buffer); ok && (err != nil || buffer.Len() != rest) || !ok && !errors.Is(err, errFull) {
			t.Errorf("%T: error %v, want all %d bytes, or %v", sink, err, rest, errFull)
		}
		if err := errors.Join(r.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	}
}

// slowSink takes longer for each write than a process that left its group may hold up the output.
type slowSink struct {
	delay time.Duration
	bytes int
}

func (s *slowSink) Write(p []byte) (int, error) {
	time.Sleep(s.delay)
	s.bytes += len(p)
	return len(p), nil
}

// A5: what a program printed before it ended is part of its result, however slow the disk is that
// stores it.
func TestOutputOfAnEndedProcessIsCompleteOnASlowDisk(t *testing.T) {
	const printed = 1 << 16 // as much as a pipe holds, so that the program can end before anything is written
	p, _, _ := shell("head -c " + strconv.Itoa(printed) + " /dev/zero")
	sink := &slowSink{delay: 20 * time.Millisecond}
	p.Stdout, p.PipeDelay = sink, time.Millisecond
	if state, err := p.Run(); err != nil || !state.Success() || sink.bytes != printed {
		t.Errorf("state %v, error %v, %d bytes of output, want success and %d bytes", state, err, sink.bytes, printed)
	}
}

// brokenSink fails after a number of bytes, as a full disk does.
type brokenSink struct{ room int }

var errFull = errors.New("no space left")

func (b *brokenSink) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestProcessEndsIfItsOutputCannotBeWritten(t *testing.T) {
	p, _, _ := shell("yes")
	p.Stdout = &brokenSink{room: 1 << 16}
	state, err := p.Run()
	if !errors.Is(err, errFull) || state.Success() {
		t.Errorf("state %v, error %v, want a failed program and %v", state, err, errFull)
	}
}

func TestProcessThatCannotStart(t *testing.T) {
	p, _, _ := shell("")
	p.Args = []string{"no-such-program-anywhere"}
	p.Stdin = []byte("x")
	state, err := p.Run()
	if state != nil || !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("state %v, error %v, want no state and %v", state, err, exec.ErrNotFound)
	}
}

func TestProcessRunsInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "here"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, stdout, _ := shell("ls")
	p.Dir = dir
	if _, err := p.Run(); err != nil || stdout.String() != "here\n" {
		t.Errorf("error %v, stdout %q, want the file of the directory", err, stdout)
	}
}

func TestStartedGetsTheProcessID(t *testing.T) {
	p, stdout, _ := shell("echo $$")
	got := 0
	p.Started = func(pid int) { got = pid }
	if _, err := p.Run(); err != nil || strings.TrimSpace(stdout.String()) != strconv.Itoa(got) {
		t.Errorf("error %v, process %d, want %s", err, got, stdout)
	}
	p.Args[0] = "no-such-program-anywhere"
	p.Started = func(int) { t.Error("Started was called for a program that cannot be found") }
	_, _ = p.Run()
}

// A program that is asked to end its work still needs its children. The child here would say that
// it got the signal, too.
func TestSignalToTheLeaderReachesNoOtherProcess(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, stdout, _ := shell(`trap 'echo leader; echo > $FIFO' TERM
		(trap 'echo child' TERM; echo up > $FIFO; read end < $FIFO; echo end) &
		wait; wait`)
	p.Env = append(os.Environ(), "FIFO="+fifo)
	p.Stops = func(g *Group) {
		if _, err := os.ReadFile(fifo); err != nil {
			t.Error(err)
		}
		if !g.SignalLeader(syscall.SIGTERM) {
			t.Error("the signal was not sent")
		}
		<-g.Exited()
		if g.SignalLeader(syscall.SIGTERM) {
			t.Error("a signal was sent to a program that has exited")
		}
	}
	if _, err := p.Run(); err != nil || stdout.String() != "leader\nend\n" {
		t.Errorf("error %v, stdout %q, want that only the leader got the signal", err, stdout)
	}
}
