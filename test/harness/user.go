package harness

import (
	"os"
	"syscall"
	"testing"
)

// nobody is the id of a user who owns no files.
const nobody = 65534

// UserWithoutPermission returns a user who has no permission for a directory. If the tests run as
// root, who may do everything, that is nobody. Otherwise it is the tests' own user (nil), and the
// directory loses its permissions until the test ends.
func UserWithoutPermission(t testing.TB, dir string) *syscall.Credential {
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
