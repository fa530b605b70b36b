package harness

import (
	"os/exec"
	"strings"
	"testing"
)

// Strace is what a Coordinator runs Under so that some of its system calls go another way than it asks: each injection is one of strace's, for
// example "fdatasync:error=EIO:when=3". It skips the test where strace is not there or may not trace.
func Strace(t testing.TB, injections ...string) []string {
	t.Helper()
	if out, err := exec.Command("strace", "-qq", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no strace: %v: %s", err, out)
	}
	under := []string{"strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", "/dev/null"}
	for _, i := range injections {
		calls, _, _ := strings.Cut(i, ":")
		under = append(under, "-e", "trace="+calls, "-e", "inject="+i)
	}
	return under
}
