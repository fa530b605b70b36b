package harness

import (
	"os/exec"
	"strings"
	"testing"
)

// Strace returns a command for Coordinator.Under that makes some system calls of the coordinator
// fail. Each injection is in strace's syntax, for example "fdatasync:error=EIO:when=3". It skips
// the test if strace is missing or not permitted.
func Strace(t testing.TB, injections ...string) []string {
	t.Helper()
	requireStrace(t)
	under := []string{"strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", "/dev/null"}
	for _, i := range injections {
		calls, _, _ := strings.Cut(i, ":")
		under = append(under, "-e", "trace="+calls, "-e", "inject="+i)
	}
	return under
}

// StraceInto returns a command for Coordinator.Under that writes the system calls of these names
// (comma-separated) to a file, with the names of the files that they use. It skips the test as
// Strace does.
func StraceInto(t testing.TB, file, calls string) []string {
	t.Helper()
	requireStrace(t)
	return []string{"strace", "-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-e", "trace=" + calls, "-o", file}
}

func requireStrace(t testing.TB) {
	t.Helper()
	if out, err := exec.Command("strace", "-qq", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no strace: %v: %s", err, out)
	}
}
