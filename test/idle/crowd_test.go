//go:build faults || long

package idle

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/test/harness"
)

// crowd is the process with the workers.
type crowd struct {
	t    *testing.T
	in   io.Writer
	out  chan string
	proc *harness.Process
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		stdin.Close()
	})
	c := &crowd{t: t, in: in, out: make(chan string, 1)}
	c.proc = harness.Start(t, harness.Command{
		Path: harness.BuildPlain(t, "test/idle/crowd"), Stdin: stdin, Stdout: harness.Lines(func(line string) { c.out <- line }),
	})
	return c
}

func (c *crowd) open(addr string, n, atOnce int) time.Duration {
	return c.do(fmt.Sprintf("open %s %d %d\n", addr, n, atOnce))
}

func (c *crowd) beat(n int) time.Duration { return c.do(fmt.Sprintf("beat %d\n", n)) }

// do sends a command, and returns how long the crowd took for it.
func (c *crowd) do(command string) time.Duration {
	c.t.Helper()
	_, _ = io.WriteString(c.in, command) // a crowd that is gone shows below
	select {
	case line := <-c.out:
		took, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			c.t.Fatalf("the crowd printed %q", line)
		}
		return time.Duration(took)
	case <-c.proc.Ended():
		c.t.Fatalf("the crowd has ended:\n%s", c.proc.Stderr())
	case <-time.After(3 * harness.Patience):
		c.t.Fatalf("the crowd did not %s", command)
	}
	return 0
}
