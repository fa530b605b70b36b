package main

import (
	"bytes"
	"encoding/gob"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// callsName is the name under which the test binary runs the commands of a script; see answerCalls.
const callsName = "lessor-calls"

// call is a command that a script runs in the process that it keeps for that.
type call struct {
	Args []string
	Dir  string
	Env  map[string]string // an empty value: the variable is not set
}

// answer is how a call ended.
type answer struct {
	Code     int
	Out, Err []byte
}

// answerCalls runs one command after the other, until its script has no more. The start of a
// process takes several times as long as most commands.
func answerCalls() {
	calls, answers := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var c call
		if calls.Decode(&c) != nil {
			return
		}
		if err := answers.Encode(c.run()); err != nil {
			panic(err)
		}
	}
}

// run runs the command as main does. Its streams are pipes, as they are of a process of a script.
func (c call) run() (a answer) {
	for name, value := range c.Env {
		err := os.Unsetenv(name)
		if value != "" {
			err = os.Setenv(name, value)
		}
		check(err)
	}
	check(os.Chdir(c.Dir))
	in, nothing, err := os.Pipe()
	check(err)
	defer func() { _ = in.Close() }()
	check(nothing.Close())
	var read sync.WaitGroup
	out, stderr := readInto(&a.Out, &read), readInto(&a.Err, &read)
	a.Code = run(c.Args, streams{in: in, out: out, err: stderr})
	check(out.Close())
	check(stderr.Close())
	read.Wait()
	return a
}

// readInto returns a pipe, and reads it into text until it is closed.
func readInto(text *[]byte, read *sync.WaitGroup) *os.File {
	r, w, err := os.Pipe()
	check(err)
	read.Go(func() {
		defer func() { _ = r.Close() }()
		*text, err = io.ReadAll(r)
		check(err)
	})
	return w
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// caller is the process in which a script runs its commands. It starts with the first of them.
type caller struct {
	environ []string // at the start of the script
	names   []string // the variables that the script may set
	cmd     *exec.Cmd
	in      io.Closer
	calls   *gob.Encoder
	answers *gob.Decoder
	log     bytes.Buffer // what Go says if it crashes
}

// takes reports whether a command may run in the process. Those that run for long, handle signals
// or start processes have one of their own, unless their arguments are refused. So has lessor run
// then, too: its input may be refused.
func (*caller) takes(code int, args []string) bool {
	if args[0] != "lessor" || len(args) == 1 {
		return false
	}
	switch args[1] {
	case "run":
		return false
	case "serve", "bench", "pool", "standby":
		return code == exitUsage
	case "worker":
		return code == exitUsage || !slices.Contains(args, "run") && !slices.Contains(args, "check")
	}
	return true
}

func (r *caller) start(ts *testscript.TestScript) {
	self, err := os.Executable()
	ts.Check(err)
	script, err := os.ReadFile(filepath.Join("testdata", ts.Name()+".txt"))
	ts.Check(err)
	r.names = []string{"LESSOR_ADDR", "OTEL_EXPORTER_OTLP_ENDPOINT"}
	for _, line := range regexp.MustCompile(`(?m)^env .*`).FindAll(script, -1) {
		for _, name := range regexp.MustCompile(`(\w+)=`).FindAllSubmatch(line, -1) {
			r.names = append(r.names, string(name[1]))
		}
	}
	r.cmd = exec.Command(self)
	r.cmd.Args[0] = callsName
	r.cmd.Env = r.environ
	r.cmd.Stderr = &r.log
	in, err := r.cmd.StdinPipe()
	ts.Check(err)
	out, err := r.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(r.cmd.Start())
	r.in, r.calls, r.answers = in, gob.NewEncoder(in), gob.NewDecoder(out)
}

// run runs a command and returns its exit code. The script may look at what it printed.
func (r *caller) run(ts *testscript.TestScript, args []string) (code int) {
	if r.cmd == nil {
		r.start(ts)
	}
	dir := ts.MkAbs(".")
	c := call{Args: args, Dir: dir, Env: map[string]string{"PWD": dir}}
	for _, name := range r.names {
		c.Env[name] = ts.Getenv(name)
	}
	ts.Check(r.calls.Encode(c))
	var a answer
	if err := r.answers.Decode(&a); err != nil {
		_ = r.end()
		ts.Fatalf("the process for commands: %v\n%s", err, &r.log)
	}
	_, _ = ts.Stdout().Write(a.Out)
	_, _ = ts.Stderr().Write(a.Err)
	return a.Code
}

func (r *caller) end() error {
	if r.cmd == nil {
		return nil
	}
	_ = r.in.Close()
	err := r.cmd.Wait()
	r.cmd = nil
	return err
}
