package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){"lessor": main})
}

// leakless are tests that leave no goroutine behind.
type leakless struct{ tests *testing.M }

func (l leakless) Run() int {
	// Scripts wait for processes, leases and disks far more than they compute. A -parallel in the command line is read later, and wins.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := l.tests.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts types the commands of testdata/*.txt.
//
// Beside the commands of testscript there are:
//
//	exits CODE COMMAND...     runs a command that ends with this exit code
//	coordinator DIR [ARG...]  starts lessor serve with its data in DIR, and sets LESSOR_ADDR once it listens
//	late QUEUE OUTPUT         takes a task, lets its lease expire, and reports the output of the first attempt too late
//	shutdown SIGNAL           ends that coordinator and waits for it
func TestScripts(t *testing.T) {
	// Under nohup all would inherit that SIGHUP is ignored, and a worker would rightly not stop at one.
	// A signal that is caught here has its default in the processes that are started.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":       exits,
			"coordinator": startCoordinator,
			"late":        reportLate,
			"shutdown":    shutdownCoordinator,
			"private":     isPrivate,
		},
	})
}

// setUp gives each script a home of its own, so that nothing of the machine's comes in.
func setUp(env *testscript.Env) error {
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("LESSOR_HEALTH_MEM", "101") // the memory and the disk of the machine keep no work away
	env.Setenv("LESSOR_HEALTH_DISK", "101")
	env.Setenv("GORACE", "atexit_sleep_ms=0") // else every process waits a second for races that its end may bring
	env.Values["coordinator"] = &running{}
	env.Defer(func() { _ = env.Values["coordinator"].(*running).end(syscall.SIGKILL) })
	return nil
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// isPrivate checks that a file is its owner's alone; what stat prints differs from system to system.
func isPrivate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: private FILE")
	}
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if mode := info.Mode().Perm(); mode != 0o600 {
		ts.Fatalf("%s: mode %o, want 600", args[0], mode)
	}
}

// running is the coordinator of a script.
type running struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

func (r *running) end(s syscall.Signal) error {
	if r.cmd == nil {
		return nil
	}
	_ = r.cmd.Process.Signal(s)
	err := r.cmd.Wait()
	r.cmd = nil
	return err
}

func startCoordinator(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: coordinator DIR [ARG...]")
	}
	args = append([]string{"serve", "--json", "--data", args[0], "--listen", "127.0.0.1:0", "--http", ""}, args[1:]...)
	r := ts.Value("coordinator").(*running)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		addr, err := r.start(ts, args)
		if err == nil {
			ts.Setenv("LESSOR_ADDR", addr)
			return
		}
		_ = r.end(syscall.SIGTERM)
		// The port that it had before may be that of a passing connection.
		if time.Now().After(deadline) || !strings.Contains(r.log.String(), " is in use\n") {
			ts.Fatalf("coordinator: %v\n%s", err, &r.log)
		}
	}
}

// start starts the process and returns where it listens.
func (r *running) start(ts *testscript.TestScript, args []string) (addr string, err error) {
	self, err := os.Executable()
	ts.Check(err)
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "lessor" // by which testscript knows what to be
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = os.Environ()
	for _, name := range []string{"HOME", "LESSOR_HEALTH_MEM", "LESSOR_HEALTH_DISK"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	r.log.Reset()
	r.cmd, cmd.Stderr = cmd, &r.log
	ts.Check(cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return "", err
	}
	var at struct{ GRPC string }
	return at.GRPC, json.Unmarshal(line, &at)
}

func shutdownCoordinator(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	if neg || len(args) != 1 || signals[args[0]] == 0 {
		ts.Fatalf("usage: shutdown TERM|KILL")
	}
	r := ts.Value("coordinator").(*running)
	if err := r.end(signals[args[0]]); err != nil && args[0] == "TERM" { // asked to stop, it ends with 0
		ts.Fatalf("coordinator: %v\n%s", err, &r.log)
	}
}
