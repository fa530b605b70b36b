package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// held is a terminal that may be held.
type held struct {
	hold chan struct{} // who puts an element in holds it; a mutex would stop the clock of a bubble
	text bytes.Buffer
}

func newHeld() *held { return &held{hold: make(chan struct{}, 1)} }

func (h *held) Write(p []byte) (int, error) {
	h.hold <- struct{}{}
	defer func() { <-h.hold }()
	return h.text.Write(p)
}

// timeless is the form of a log whose lines can be compared.
func timeless(w io.Writer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

const droppedLines = `level=WARN msg="lines of the log were dropped: nobody took them, or they could not be written" lines=`

// A log that nobody takes holds up nobody, and takes only so much memory. When it is taken again,
// it says where how many lines are missing.
func TestLogThatNobodyTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		terminal := newHeld()
		log := newLogWriter(terminal, timeless)
		line := func(n int) string { return fmt.Sprintf("%d %s\n", n, strings.Repeat("x", logRoom/10)) }
		say := func(text string) {
			if n, err := io.WriteString(log, text); n != len(text) || err != nil {
				t.Errorf("wrote %d bytes of %d (%v)", n, len(text), err)
			}
			synctest.Wait()
		}
		var want strings.Builder
		for range 2 {
			terminal.hold <- struct{}{}
			began := time.Now()
			for n := range 20 {
				say(line(n))
				if n < 10 { // one is being written, nine wait
					want.WriteString(line(n))
				}
			}
			say("short\n") // there is room for it, but its place is in the gap
			if log.flush(time.Second); time.Since(began) != time.Second {
				t.Errorf("a log that nobody takes held up the end by %v, want %v", time.Since(began), time.Second)
			}
			want.WriteString(droppedLines + "11\nafter the gap\n")
			<-terminal.hold
			log.flush(time.Second)
			say("after the gap\n")
		}
		if got := terminal.text.String(); got != want.String() {
			t.Errorf("the log is\n%s\nwant\n%s", shortened(got), shortened(want.String()))
		}
		if n := log.total.Load(); n != 22 {
			t.Errorf("%d lines were dropped, want 22", n)
		}
	})
}

func shortened(log string) string {
	return strings.ReplaceAll(log, strings.Repeat("x", logRoom/10), "…")
}

// Lines of many goroutines are whole, those of each are in order, and the end of the process waits
// for the last ones.
func TestLogOfManyGoroutines(t *testing.T) {
	const many, count = 20, 200
	var text bytes.Buffer
	w := newLogWriter(&text, timeless)
	log := slog.New(timeless(w))
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			for n := range count {
				log.Info("line", "of", i, "n", n)
			}
		})
	}
	all.Wait()
	w.flush(time.Minute)
	next := make([]int, many)
	for line := range strings.Lines(text.String()) {
		var of, n int
		if _, err := fmt.Sscanf(line, "level=INFO msg=line of=%d n=%d\n", &of, &n); err != nil || n != next[of] {
			t.Fatalf("line %q (%v), want line %d of that goroutine", line, err, next[of])
		}
		next[of]++
	}
	for i, n := range next {
		if n != count {
			t.Errorf("%d lines of goroutine %d, want %d", n, i, count)
		}
	}
}

// fullDisk has room for some bytes.
type fullDisk struct {
	room, writes int
	text         bytes.Buffer
}

func (f *fullDisk) Write(p []byte) (int, error) {
	f.writes++
	n := min(f.room, len(p))
	f.room -= n
	f.text.Write(p[:n])
	if n < len(p) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// A log that cannot be written is tried again with the next line, not all the time. When it can be
// written again, it says what is missing, in a line of its own.
func TestLogThatCannotBeWritten(t *testing.T) {
	disk := &fullDisk{room: 10}
	log := newLogWriter(disk, timeless)
	say := func(text string) {
		_, _ = io.WriteString(log, text)
		log.flush(time.Minute)
	}
	for n := range 5 {
		say(fmt.Sprintf("line %d\n", n))
	}
	if most := 10; disk.writes > most {
		t.Errorf("%d writes of 5 lines, want at most %d", disk.writes, most)
	}
	disk.room = 1000
	say("line 5\n")
	say("line 6\n")
	if want := "line 0\nlin\n" + droppedLines + "4\nline 5\nline 6\n"; disk.text.String() != want {
		t.Errorf("the log is\n%s\nwant\n%s", &disk.text, want)
	}
	if n := log.total.Load(); n != 4 {
		t.Errorf("%d lines were dropped, want 4", n)
	}
}

// fullPipe returns the ends of a pipe that holds all it can.
func fullPipe(t *testing.T) (out, in *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = out.Close(), in.Close() })
	raw, err := in.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Write(func(fd uintptr) bool {
		for size := 4096; size > 0; { // what is smaller may still fit
			if _, err := syscall.Write(int(fd), make([]byte, size)); err != nil {
				size /= 2
			}
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return out, in
}

// startLessor starts a lessor. It is killed after a minute, which fails the test.
func startLessor(t *testing.T, out, err *os.File, args ...string) *exec.Cmd {
	t.Helper()
	self, lost := os.Executable()
	if lost != nil {
		t.Fatal(lost)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0] = "lessor"
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", "LESSOR_HEALTH_MEM=101",
		"LESSOR_HEALTH_DISK=101", "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = out, err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return cmd
}

// lineOf returns the first line with this text that a lessor prints into the pipe that start gets,
// and takes what comes after it.
func lineOf(t *testing.T, text string, start func(in *os.File)) string {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	start(in)
	_ = in.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return lines.Text()
		}
	}
	t.Fatalf("no line with %q: %v", text, lines.Err())
	return ""
}

// stop ends a lessor as a service manager does.
func stop(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v ended with %v", cmd.Args[1:], err)
	}
}

// A coordinator serves although it cannot print where, and a standby follows although it cannot
// print whom: the disk is full, or the pipe is closed. The log has the line.
func TestServiceThatCannotPrint(t *testing.T) {
	t.Parallel()
	for name, out := range unwritable(t) {
		t.Run(name, func(t *testing.T) {
			var serve, follow *exec.Cmd
			const cannot = "a line cannot be printed"
			line := lineOf(t, cannot, func(log *os.File) {
				serve = startLessor(t, out, log, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "")
			})
			_, addr, _ := strings.Cut(strings.TrimRight(line, `"}`), "serving gRPC on ")
			lineOf(t, cannot, func(log *os.File) {
				follow = startLessor(t, out, log, "standby", "run", "--data", t.TempDir(), "--addr", addr)
			})
			stop(t, follow)
			stop(t, serve)
		})
	}
}

// unwritable returns outputs that cannot be written.
func unwritable(t *testing.T) map[string]*os.File {
	t.Helper()
	reader, closed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	all := map[string]*os.File{"closed pipe": closed}
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil { // only Linux has it
		all["full disk"] = full
	}
	for _, out := range all {
		t.Cleanup(func() { _ = out.Close() })
	}
	return all
}

// If nobody takes their logs, a coordinator and a worker do their work, and stop in order.
func TestServiceWhoseLogNobodyTakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, log := fullPipe(t)
	var serve *exec.Cmd
	announced := lineOf(t, "grpc", func(in *os.File) {
		serve = startLessor(t, in, log, "serve", "--json", "--data", dir, "--listen", "127.0.0.1:0", "--http", "",
			"--log-level", "debug")
	})
	var at struct{ GRPC string }
	if err := json.Unmarshal([]byte(announced), &at); err != nil {
		t.Fatal(err)
	}
	worker := startLessor(t, nil, log, "worker", "run", "--addr", at.GRPC, "--queue", "q", "--log-level", "debug", "--", "cat")
	wantWorkDone(t, at.GRPC)
	stop(t, worker)
	stop(t, serve)
}

// wantWorkDone checks that a worker does a task of the queue q.
func wantWorkDone(t *testing.T, addr string) {
	t.Helper()
	lessor := func(args ...string) string {
		var out, err bytes.Buffer
		if code := run(append(args, "--addr", addr), streams{out: &out, err: &err}); code != exitOK {
			t.Fatalf("%v exits with %d: %s", args, code, &err)
		}
		return strings.TrimSpace(out.String())
	}
	id := lessor("submit", "--queue", "q", "--payload", "hello")
	lessor("task", "watch", id)
	if got := lessor("task", "get", id, "--output"); got != "hello" {
		t.Errorf("the output is %q, want %q", got, "hello")
	}
}

// If nobody takes its output, a coordinator serves all the same.
func TestCoordinatorWhoseOutputNobodyTakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, out := fullPipe(t)
	var serve *exec.Cmd
	serving := lineOf(t, `"msg":"serving"`, func(in *os.File) {
		serve = startLessor(t, out, in, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", "")
	})
	var at struct{ GRPC string }
	if err := json.Unmarshal([]byte(serving), &at); err != nil {
		t.Fatal(err)
	}
	worker := startLessor(t, nil, nil, "worker", "run", "--addr", at.GRPC, "--queue", "q", "--", "cat")
	wantWorkDone(t, at.GRPC)
	stop(t, worker)
	stop(t, serve)
}

// If the reader of its log has gone, a coordinator serves all the same, stops in order, and fails
// with the exit code that says why.
func TestCoordinatorWhoseLogIsClosed(t *testing.T) {
	t.Parallel()
	out, log, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	var serve *exec.Cmd
	lineOf(t, "serving", func(in *os.File) {
		serve = startLessor(t, in, log, "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "")
	})
	stop(t, serve)
	fails := startLessor(t, nil, log, "serve", "--data", os.Args[0], "--listen", "127.0.0.1:0", "--http", "")
	_ = log.Close()
	_ = fails.Wait() // the code says more
	if code := fails.ProcessState.ExitCode(); code != exitCannotStart {
		t.Errorf("%v, want exit code %d", fails.ProcessState, exitCannotStart)
	}
}

// If nobody takes the log of a run, its lines are done all the same, and the log says later what is
// missing.
func TestRunWhoseLogNobodyTakes(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = done.Close() }()
	if err := done.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read, log := fullPipe(t)
	cmd := startLessor(t, nil, log, "run", "-v", "-j", "1", "--input", lines, "--", "sh", "-c", `echo "$1" > "$2"`,
		"sh", "{}", fifo)
	_ = log.Close()
	text := make([]byte, len("a\nb\nc\n"))
	if _, err := io.ReadFull(done, text); err != nil {
		t.Fatalf("nobody takes the log, and no line is done: %v", err)
	}
	said, err := io.ReadAll(read)
	if summary := "\n3 lines: 3 done, 0 failed, 0 retried, in "; err != nil || !strings.Contains(string(said), summary) {
		t.Errorf("what the run says ends with %q (%v), want a line that begins with %q",
			said[max(0, len(said)-200):], err, summary)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
