package harness

import "bytes"

// Verify looks through the store of a coordinator that does not run, and fails the test if anything in it is wrong.
func (c *Coordinator) Verify() {
	c.t.Helper()
	var findings bytes.Buffer
	p := Start(c.t, Command{Args: []string{"verify", c.dir}, Stdout: &findings})
	if code := p.Wait(); code != 0 {
		c.t.Fatalf("lessor verify ended with exit code %d:\n%s%s", code, findings.String(), p.Stderr())
	}
}
