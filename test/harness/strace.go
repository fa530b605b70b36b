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
	wantStrace(t)
	under := []string{"strace", "-D", "-f", "-qq", "-e", "signal=none", "-o", "/dev/null"}
	for _, i := range injections {
		calls, _, _ := strings.Cut(i, ":")
		under = append(under, "-e", "trace="+calls, "-e", "inject="+i)
	}
	return under
}

// StraceInto is a command that runs a program as its last arguments, and writes the calls of these names, divided by commas, to a file, with the names of the
// files that they are on. It skips the test as Strace does.
func StraceInto(t testing.TB, file, calls string) []string {
	t.Helper()
	wantStrace(t)
	return []string{"strace", "-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-e", "trace=" + calls, "-o", file}
}

func wantStrace(t testing.TB) {
	t.Helper()
	if out, err := exec.Command("strace", "-qq", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no strace: %v: %s", err, out)
	}
}
