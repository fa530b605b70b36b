package execworker

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is a process that runs a script. It waits for its output for an hour: a test that gets there hangs.
func shell(script string) (p *process, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	p = &process{
		args: Command{"sh", "-c", script}, stdout: stdout, stderr: stderr, pipeDelay: time.Hour,
		stops: func(exited <-chan struct{}, _ func(syscall.Signal)) { <-exited },
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
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
}

func TestProcessNeedNotReadItsInput(t *testing.T) {
	p, stdout, _ := shell("echo done")
	p.stdin = bytes.Repeat([]byte("x"), 1<<20) // more than a pipe holds
	state, err := p.run()
	if err != nil || !state.Success() || stdout.String() != "done\n" {
		t.Errorf("%v, %v, %q", state, err, stdout)
	}
}

func TestProcessWithoutPayloadHasNoInput(t *testing.T) {
	p, stdout, _ := shell("cat; echo end")
	if _, err := p.run(); err != nil || stdout.String() != "end\n" {
		t.Errorf("%v, %q", err, stdout)
	}
}

// A background process holds standard output open: if it were not killed with its group, run would hang.
func TestProcessGroupIsKilledWhenItsLeaderEnds(t *testing.T) {
	p, stdout, _ := shell("sleep 1000 & echo begun")
	state, err := p.run()
	if err != nil || !state.Success() || stdout.String() != "begun\n" {
		t.Errorf("%v, %v, %q", state, err, stdout)
	}
}

// The inner sleep gets the signal too: else it would hold standard output open, and run would hang.
func TestSignalsReachTheWholeGroup(t *testing.T) {
	p, _, _ := shell("sleep 1000; echo not reached")
	p.stops = func(exited <-chan struct{}, signal func(syscall.Signal)) {
		signal(syscall.SIGTERM)
		<-exited
	}
	state, err := p.run()
	if err != nil || state.String() != "signal: terminated" {
		t.Errorf("%v, %v", state, err)
	}
}

func TestProcessThatLeftItsGroupDoesNotHoldUpTheOutput(t *testing.T) {
	p, stdout, _ := shell("setsid sleep 3 & echo begun")
	p.pipeDelay = time.Millisecond
	state, err := p.run()
	if err != nil || !state.Success() {
		t.Errorf("%v, %v, %q", state, err, stdout)
	}
}

// brokenSink fails after some bytes, as a full disk does.
type brokenSink struct{ room int }

var errFull = errors.New("no space left")

func (b *brokenSink) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestProcessEndsWhenItsOutputCannotBeTakenIn(t *testing.T) {
	p, _, _ := shell("yes")
	p.stdout = &brokenSink{room: 1 << 16}
	state, err := p.run()
	if !errors.Is(err, errFull) || state.Success() {
		t.Errorf("%v, %v", state, err)
	}
}

func TestProcessThatCannotStart(t *testing.T) {
	p, _, _ := shell("")
	p.args = Command{"no-such-program-anywhere"}
	p.stdin = []byte("x")
	state, err := p.run()
	if state != nil || err == nil || !strings.Contains(err.Error(), "cannot run") {
		t.Errorf("%v, %v", state, err)
	}
}
