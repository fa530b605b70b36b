package harness

import (
	"bytes"
	"path/filepath"
	"strings"

	"github.com/lessor-dev/lessor/store"
)

// Verify runs `lessor verify` on the store of a coordinator that does not run, and fails the test
// if it finds a problem. After a power cut, the last commit may be incomplete.
func (c *Coordinator) Verify() {
	c.t.Helper()
	var findings bytes.Buffer
	p := Start(c.t, Command{Args: []string{"verify", c.dir}, Stdout: &findings})
	code := p.Wait()
	incomplete := &store.TornError{Path: filepath.Join(c.dir, "lessor.db")}
	torn := c.PowerCuts && strings.Contains(p.Stderr(), incomplete.Error())
	if code != 0 && !torn {
		c.t.Fatalf("lessor verify ended with exit code %d:\n%s%s", code, findings.String(), p.Stderr())
	}
}

// TookBack reports whether the last start took back a commit that the end of the previous process
// had cut off.
func (c *Coordinator) TookBack() bool { return strings.Contains(c.proc.Stderr(), "was taken back") }
