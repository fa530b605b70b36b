package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Args[0] == callsName {
		answerCalls()
		return
	}
	testscript.Main(leakCheck{m}, map[string]func(){"lessor": main})
}

// leakCheck runs tests, and fails if they leave a goroutine behind.
type leakCheck struct{ tests *testing.M }

func (l leakCheck) Run() int {
	// Under nohup, SIGHUP is ignored, and in the background of a shell script SIGINT. The commands
	// that the tests start would inherit that, and not stop at such a signal. A signal that this
	// process catches has its default action again in the processes that it starts.
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	// make test sets it for the tests; the commands that they start collect as they do for users
	_ = os.Unsetenv("GOGC")
	// Scripts mostly wait for processes, leases and disks, so twice as many may run as there are
	// processors. A -parallel on the command line still wins: it is parsed later.
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

// TestScripts runs the scripts testdata/*.txt.
//
// Beside the commands of testscript there are:
//
//	exits CODE COMMAND...     runs a command that must end with this exit code; most commands of
//	                          lessor run in one process, which has no standard input
//	coordinator DIR [ARG...]  starts lessor serve with its data in DIR, and sets LESSOR_ADDR once it listens
//	late QUEUE OUTPUT         takes a task, lets its lease expire, and reports the output of the first attempt too late
//	installer NAME QUEUE      plays a worker that installs packages, until the end of the script
//	compressed                makes each call of that coordinator compressed, which must be refused
//	private FILE              checks that only its owner may read and write a file
//	receiver                  takes in spans, which the commands export from then on
//	spans FILE                writes what spans there are
//	fetch ADDR PATH FILE      gets a page from the address in the file ADDR, and writes it to FILE
//	shutdown SIGNAL           sends TERM or KILL to that coordinator, and waits for its end
func TestScripts(t *testing.T) {
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
			"compressed":  callCompressed,
			"private":     isPrivate,
			"receiver":    startReceiver,
			"spans":       writeSpans,
			"fetch":       fetch,
		},
	})
}

// ofCoordinators are settings of the coordinators that scripts start.
var ofCoordinators = []string{
	"LESSOR_HEALTH_MEM=101", "LESSOR_HEALTH_DISK=101", // no machine has so much in use
	"LESSOR_DISK_RESERVE=1", // 64 MiB take as long as the rest of the start
}

// setUp makes a script independent of the files in the home directory.
func setUp(env *testscript.Env) error {
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	// otherwise each process of a race build sleeps for a second before it exits
	env.Setenv("GORACE", "atexit_sleep_ms=0")
	kept := &caller{environ: slices.Clone(env.Vars)}
	env.Values["caller"] = kept
	env.Defer(func() { _ = kept.end() })
	env.Values["coordinator"] = &running{}
	env.Values["spans"] = new(*spanReceiver)
	env.Defer(func() { _ = env.Values["coordinator"].(*running).end(syscall.SIGKILL) })
	return nil
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	var got int
	if kept := ts.Value("caller").(*caller); kept.takes(want, args[1:]) {
		got = kept.run(ts, args[2:])
	} else {
		err = ts.Exec(args[1], args[2:]...)
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		} else {
			ts.Check(err)
		}
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// isPrivate checks that only its owner may read and write a file. The scripts do not use stat,
// because its output depends on the system.
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

// fetch gets a page by HTTP.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: fetch ADDR PATH FILE")
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + strings.TrimSpace(ts.ReadFile(args[0])) + args[1])
	ts.Check(err)
	defer func() { _ = res.Body.Close() }()
	page, err := io.ReadAll(res.Body)
	ts.Check(err)
	if res.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s: %s", args[1], res.Status, page)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), page, 0o600))
}

// running is the coordinator that a script started.
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
		// A coordinator that starts again uses its old port, which a short-lived connection may
		// hold at this moment.
		if time.Now().After(deadline) || !strings.Contains(r.log.String(), " is in use\n") {
			ts.Fatalf("coordinator: %v\n%s", err, &r.log)
		}
	}
}

// start starts the process and returns the address on which it listens.
func (r *running) start(ts *testscript.TestScript, args []string) (addr string, err error) {
	self, err := os.Executable()
	ts.Check(err)
	cmd := exec.Command(self, args...)
	cmd.Args[0] = "lessor" // testscript runs the command of this name
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), ofCoordinators...)
	for _, name := range []string{"HOME", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
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
	if err := r.end(signals[args[0]]); err != nil && args[0] == "TERM" { // the exit code must be 0
		ts.Fatalf("coordinator: %v\n%s", err, &r.log)
	}
}
