package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lessor-dev/lessor/worker"
)

// coordinator is what a phase measures: a child process, or a coordinator that runs elsewhere.
type coordinator struct {
	grpc, http string // where it listens; http is empty where there is none
	options    []grpc.DialOption
	cmd        *exec.Cmd // nil for one that runs elsewhere
	ended      func()    // to be called when cmd has ended
	dir        string
	disk       flushCounter  // of dir
	log        *bytes.Buffer // what it wrote to standard error
	profiler   *profiler     // nil unless the phase is profiled
}

// remoteCoordinator returns the coordinator at Addr, the only kind that may need TLS or a
// credential.
func (c *Config) remoteCoordinator() *coordinator {
	return &coordinator{grpc: c.Addr, options: c.Options}
}

// connect calls worker.Dial, without TLS unless the options have it.
func (s *coordinator) connect() (*grpc.ClientConn, error) {
	return worker.Dial(s.grpc, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, s.options...)...)
}

// start starts a coordinator on the data in dir, which is killed when ctx ends; with Addr it
// returns that one.
func (c *Config) start(ctx context.Context, dir string, args ...string) (*coordinator, error) {
	if c.Addr != "" {
		return c.remoteCoordinator(), nil
	}
	args = append([]string{
		"--json", "--data", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--log-level", "warn",
	}, args...)
	s := &coordinator{
		log: new(bytes.Buffer), dir: dir, disk: flushCounterOf(dir),
		cmd: exec.CommandContext(ctx, c.Command[0], append(c.Command[1:len(c.Command):len(c.Command)], args...)...),
	}
	s.cmd.Args[0] = filepath.Base(os.Args[0])
	s.cmd.Env = withoutSettings(os.Environ())
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.startProcess(); err != nil {
		return nil, fmt.Errorf("starting a coordinator: %w", err)
	}
	if err := s.readAddresses(bufio.NewReader(out)); err != nil {
		s.kill()
		return nil, fmt.Errorf("starting a coordinator: %w: %s", err, bytes.TrimSpace(s.log.Bytes()))
	}
	return s, nil
}

// startProcess starts cmd so that it does not survive this process, if the system can do that. The
// kernel watches the thread that started cmd, so that thread must live as long. A goroutine of its
// own holds it, because a goroutine that is bound to a thread is slower.
func (s *coordinator) startProcess() error {
	s.cmd.SysProcAttr = diesWithParent()
	started := make(chan error, 1)
	alive, ended := context.WithCancel(context.Background())
	s.ended = ended
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			<-alive.Done()
		}
	}()
	return <-started
}

// wait waits for the end of the process.
func (s *coordinator) wait() error {
	defer s.ended()
	return s.cmd.Wait()
}

// withoutSettings removes the variables that would configure the coordinator, so that it runs with
// its defaults.
func withoutSettings(env []string) (kept []string) {
	for _, variable := range env {
		if !strings.HasPrefix(variable, "LESSOR_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

func (s *coordinator) readAddresses(out *bufio.Reader) error {
	line, err := out.ReadBytes('\n')
	if err != nil {
		return err
	}
	var at struct{ GRPC, HTTP string }
	err = json.Unmarshal(line, &at)
	s.grpc, s.http = at.GRPC, at.HTTP
	return err
}

// kill ends the process as a crash would.
func (s *coordinator) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.wait() // it was killed
}

// restart starts a process on the data of one that was killed.
func (s *coordinator) restart(ctx context.Context, c *Config) error {
	fresh, err := c.start(ctx, s.dir)
	if err == nil {
		*s = *fresh
	}
	return err
}

// stop stops the process gracefully. An error means that the process had failed.
func (s *coordinator) stop() error {
	if s.cmd == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // if it is gone, wait tells
	if err := s.wait(); err != nil {
		return fmt.Errorf("the coordinator: %w: %s", err, bytes.TrimSpace(s.log.Bytes()))
	}
	return nil
}

// cpu returns the processor time that the coordinator has used so far, 0 for one elsewhere.
func (s *coordinator) cpu() time.Duration {
	if s.cmd == nil {
		return 0
	}
	return cpuTime(s.cmd.Process.Pid)
}

// memory returns what the process holds now.
func (s *coordinator) memory() (m memory, ok bool) {
	if s.cmd == nil {
		return memory{}, false
	}
	return memoryOf(s.cmd.Process.Pid)
}

// withCoordinator calls use with a coordinator on an empty directory, and removes that in the end.
func (c *Config) withCoordinator(ctx context.Context, use func(s *coordinator) error, args ...string) (err error) {
	dir, err := os.MkdirTemp(c.Dir, "lessor-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := c.start(ctx, dir, args...)
	if err != nil {
		return err
	}
	if err := use(s); err != nil {
		s.kill()
		return err
	}
	return s.stop()
}
