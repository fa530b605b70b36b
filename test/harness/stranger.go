package harness

import (
	"os"
	"syscall"
	"testing"
)

// nobody is a user who owns nothing.
const nobody = 65534

// Stranger returns the user as whom a process has no permission for a directory: nobody, where the tests run as root, to
// whom permissions mean nothing; else the tests' own user, from whom they are taken until the test ends.
func Stranger(t testing.TB, dir string) *syscall.Credential {
	t.Helper()
	if os.Getuid() == 0 {
		return &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) }) // so that it can be removed
	return nil
}
