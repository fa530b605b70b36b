package harness

import (
	"bytes"
	"strings"
)

// Verify runs `lessor verify` on the store of a coordinator that does not run, and fails the test if it finds a problem.
func (c *Coordinator) Verify() {
	c.t.Helper()
	var findings bytes.Buffer
	p := Start(c.t, Command{Args: []string{"verify", c.dir}, Stdout: &findings})
	code := p.Wait()
	torn := c.PowerCuts && strings.Contains(p.Stderr(), "lessor serve takes back that commit")
	if code != 0 && !torn {
		c.t.Fatalf("lessor verify ended with exit code %d:\n%s%s", code, findings.String(), p.Stderr())
	}
}

// TookBack reports whether the last start took back a commit that the end of the previous process had cut off.
func (c *Coordinator) TookBack() bool { return strings.Contains(c.proc.Stderr(), "was taken back") }
