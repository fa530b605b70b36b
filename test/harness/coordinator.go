package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Coordinator is a data directory and the processes that serve it, one after another.
type Coordinator struct {
	// Path of the program. Empty: the lessor under test.
	Path string
	// Env is added to the environment of each process.
	Env []string
	// Under is a command that runs the program, given as its last arguments, in its own process (as
	// strace -D and prlimit do). Empty: none.
	Under []string
	// PowerCuts says that its processes end by power cuts. Verify then accepts a store whose last
	// commit the next start has to take back.
	PowerCuts bool

	t    testing.TB
	dir  string
	conn *grpc.ClientConn // to the present process
	proc *Process

	mu sync.Mutex
	at listening // of the present process; empty while there is none
}

// NewCoordinator prepares to serve a data directory. Nothing runs yet.
func NewCoordinator(t testing.TB, dir string) *Coordinator {
	return &Coordinator{t: t, dir: dir}
}

// Start starts a process with these additional arguments, and returns once it serves.
func (c *Coordinator) Start(args ...string) {
	c.t.Helper()
	if !c.Try(args...) {
		c.t.Fatalf("the coordinator did not start: exit code %d\n%s", c.proc.Wait(), c.proc.Stderr())
	}
}

// Try is like Start, but returns false if the process ends instead.
func (c *Coordinator) Try(args ...string) bool {
	c.t.Helper()
	at := make(chan listening, 1)
	c.proc = c.Launch(Lines(func(line string) { at <- parseListening(line) }), args...)
	select {
	case a := <-at:
		c.setAddr(a)
	case <-c.proc.Ended():
		return false
	case <-time.After(Patience):
		c.t.Fatalf("the coordinator did not start\n%s", c.proc.Stderr())
	}
	if c.conn != nil {
		_ = c.conn.Close() // otherwise thousands of connections would keep looking for processes that are gone
	}
	c.conn = c.dial(c.Addr())
	return c.call()
}

// Launch starts a process with these additional arguments, and does not wait. The process prints a
// line to stdout when it serves.
func (c *Coordinator) Launch(stdout io.Writer, args ...string) *Process {
	c.t.Helper()
	return Start(c.t, Command{
		Path:   c.Path,
		Args:   append([]string{"serve", "--json", "--data", c.dir, "--listen", "127.0.0.1:0", "--http", ""}, args...),
		Under:  c.Under,
		Env:    c.Env,
		Stdout: stdout,
	})
}

// Listen starts a process with these additional arguments, and returns once it has printed where it
// listens. It is for a coordinator that would refuse the call by which Start checks that it serves.
func (c *Coordinator) Listen(args ...string) (p *Process, grpc, http string) {
	c.t.Helper()
	at := make(chan listening, 1)
	p = c.Launch(Lines(func(line string) { at <- parseListening(line) }), args...)
	select {
	case a := <-at:
		return p, a.GRPC, a.HTTP
	case <-p.Ended():
	case <-time.After(Patience):
	}
	c.t.Fatalf("the coordinator did not start\n%s", p.Stderr())
	return nil, "", ""
}

// listening is where a coordinator listens.
type listening struct{ GRPC, HTTP string }

// parseListening reads what lessor serve prints when it listens.
func parseListening(line string) (at listening) {
	_ = json.Unmarshal([]byte(line), &at) // if it fails, the address is empty, and the dial reports that
	return at
}

// call waits until the process answers; it returns false if the process ends instead.
func (c *Coordinator) call() bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	ended := c.proc.Ended()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	_, err := lessorv1.NewAdminServiceClient(c.conn).GetStatus(ctx, &lessorv1.GetStatusRequest{},
		grpc.WaitForReady(true))
	switch {
	case err == nil:
		return true
	case c.proc.hasEnded(), status.Code(err) == codes.Unavailable && c.proc.endedWithin(Patience):
		// the connection may end before the test hears of the end of the process
		return false
	}
	c.t.Fatalf("the coordinator does not answer: %v\n%s", err, c.proc.Stderr())
	return false
}

// Kill ends the process by SIGKILL. The connection stays open until the next start; calls on it
// fail.
func (c *Coordinator) Kill() {
	c.t.Helper()
	c.setAddr(listening{})
	c.proc.Kill()
}

// KillOrStoreFailed is like Kill, but the process may also have ended by itself because its store
// failed.
func (c *Coordinator) KillOrStoreFailed() {
	c.t.Helper()
	c.setAddr(listening{})
	c.proc.KillOrStoreFailed()
}

// Stop ends the process in order, and fails the test if its exit code is not 0.
func (c *Coordinator) Stop() {
	c.t.Helper()
	c.setAddr(listening{})
	if code := c.proc.Stop(); code != 0 {
		c.t.Fatalf("the coordinator ended with exit code %d\n%s", code, c.proc.Stderr())
	}
}

// Conn returns the connection to the present process.
func (c *Coordinator) Conn() *grpc.ClientConn { return c.conn }

// Addr returns where the present process listens; empty while there is none.
func (c *Coordinator) Addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.GRPC
}

// HTTP returns where the present process serves metrics and profiles, if it was started with
// --http.
func (c *Coordinator) HTTP() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.HTTP
}

// Process returns the present process, or the last one.
func (c *Coordinator) Process() *Process { return c.proc }

func (c *Coordinator) setAddr(at listening) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// Follow makes a connection that finds the coordinator wherever it listens after a restart. The
// kernel chooses each port: a fixed port could be taken by another process in between.
func (c *Coordinator) Follow() *grpc.ClientConn {
	c.t.Helper()
	var d net.Dialer
	return c.dial("passthrough:///coordinator", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		addr := c.Addr()
		if addr == "" {
			return nil, errors.New("the coordinator is down")
		}
		return d.DialContext(ctx, "tcp", addr)
	}))
}

func (c *Coordinator) dial(target string, opts ...grpc.DialOption) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient(target, append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 10 * time.Millisecond, Multiplier: 1.5,
				MaxDelay: 100 * time.Millisecond,
			},
			MinConnectTimeout: time.Second,
		}))...)
	if err != nil {
		c.t.Fatal(fmt.Errorf("dial %q: %w", target, err))
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}
