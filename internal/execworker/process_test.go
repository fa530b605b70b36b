package execworker

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell returns a process that runs a script. Its pipeDelay is an hour: if something keeps the output open, the test hangs instead of passing.
func shell(script string) (p *process, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	p = &process{
		args: Command{"sh", "-c", script}, stdout: stdout, stderr: stderr, pipeDelay: time.Hour,
		stops: func(g *group) { <-g.exited },
	}
	return p, stdout, stderr
}

func TestProcessConnectsTheThreeStreams(t *testing.T) {
	p, stdout, stderr := shell("cat; echo $GREETING; echo oops >&2")
	p.stdin, p.env = []byte("payload\n"), []string{"GREETING=hello", "PATH=/bin:/usr/bin"}
	state, err := p.run()
	if err != nil || !state.Success() {
		t.Fatal(state, err)
	}
	if stdout.String() != "payload\nhello\n" || stderr.String() != "oops\n" {
		t.Errorf("stdout %q, stderr %q, want payload and hello in stdout, oops in stderr", stdout, stderr)
	}
}

// A payload may be as short as one byte.
func TestShortestPayloadReachesTheProcess(t *testing.T) {
	p, stdout, _ := shell("cat")
	p.stdin = []byte("x")
	if state, err := p.run(); err != nil || !state.Success() || stdout.String() != "x" {
		t.Errorf("state %v, error %v, stdout %q, want success and the payload", state, err, stdout)
	}
}

func TestProcessNeedNotReadItsInput(t *testing.T) {
	p, stdout, _ := shell("echo done")
	p.stdin = bytes.Repeat([]byte("x"), 1<<20) // more than the buffer of a pipe, so that the write blocks
	state, err := p.run()
	if err != nil || !state.Success() || stdout.String() != "done\n" {
		t.Errorf("state %v, error %v, stdout %q, want success and stdout \"done\\n\"", state, err, stdout)
	}
}

// A process without payload must not read what the worker itself has as standard input.
func TestProcessWithoutPayloadHasNoInput(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(name, []byte("input of the worker\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func(before *os.File) { os.Stdin = before; _ = input.Close() }(os.Stdin)
	os.Stdin = input
	p, stdout, _ := shell("cat; echo end")
	if _, err := p.run(); err != nil || stdout.String() != "end\n" {
		t.Errorf("error %v, stdout %q, want the end of the input at once and stdout \"end\\n\"", err, stdout)
	}
}

// The background process keeps standard output open. If it was not killed with its group, run would wait for it.
func TestProcessGroupIsKilledWhenItsLeaderEnds(t *testing.T) {
	p, stdout, _ := shell("sleep 1000 & echo begun")
	state, err := p.run()
	if err != nil || !state.Success() || stdout.String() != "begun\n" {
		t.Errorf("state %v, error %v, stdout %q, want success and stdout \"begun\\n\"", state, err, stdout)
	}
}

// The shell's child must get the signal, too. Otherwise it would keep standard output open, and run would wait for it.
func TestSignalsReachTheWholeGroup(t *testing.T) {
	p, _, _ := shell("sleep 1000; echo not reached")
	p.stops = func(g *group) {
		g.signal(syscall.SIGTERM)
		<-g.exited
	}
	state, err := p.run()
	if err != nil || state.String() != "signal: terminated" {
		t.Errorf("state %v, error %v, want signal: terminated and no error", state, err)
	}
}

// A process that has left the group is not killed with it, and keeps standard output open until the test lets it end. run waits for it only for the
// pipeDelay.
func TestProcessThatLeftItsGroupDoesNotHoldUpTheOutput(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p, stdout, _ := shell("setsid sh -c 'echo left > $FIFO; read end < $FIFO' & read left < $FIFO")
	p.env = append(os.Environ(), "FIFO="+fifo)
	p.pipeDelay = time.Millisecond
	state, err := p.run()
	if err != nil || !state.Success() {
		t.Errorf("state %v, error %v, stdout %q, want success", state, err, stdout)
	}
	if err := os.WriteFile(fifo, []byte("end\n"), 0); err != nil { // ends the process
		t.Error(err)
	}
}

// refilling is a sink that writes as much to a pipe as it takes from it, as a process that goes on printing does.
type refilling struct {
	pipe  *os.File
	taken int
}

func (r *refilling) Write(p []byte) (int, error) {
	r.taken += len(p)
	return r.pipe.Write(p)
}

// What a pipe may have held when its command ended is copied, and no more, even if a process that left the group goes on printing.
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

// All that a pipe holds is copied, to the last byte, or there is an error: a part of an output must not be taken for all of it.
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

// A5: what a command printed before it ended is part of its result, however slow the disk is that stores it.
func TestOutputOfAnEndedCommandIsCompleteOnASlowDisk(t *testing.T) {
	const printed = 1 << 16 // as much as a pipe holds, so that the command can end before anything is written
	p, _, _ := shell("head -c " + strconv.Itoa(printed) + " /dev/zero")
	sink := &slowSink{delay: 20 * time.Millisecond}
	p.stdout, p.pipeDelay = sink, time.Millisecond
	if state, err := p.run(); err != nil || !state.Success() || sink.bytes != printed {
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
	p.stdout = &brokenSink{room: 1 << 16}
	state, err := p.run()
	if !errors.Is(err, errFull) || state.Success() {
		t.Errorf("state %v, error %v, want a failed command and %v", state, err, errFull)
	}
}

func TestProcessThatCannotStart(t *testing.T) {
	p, _, _ := shell("")
	p.args = Command{"no-such-program-anywhere"}
	p.stdin = []byte("x")
	state, err := p.run()
	if state != nil || err == nil || !strings.Contains(err.Error(), "cannot run") {
		t.Errorf("state %v, error %v, want no state and an error with \"cannot run\"", state, err)
	}
}
