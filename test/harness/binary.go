package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// binary is the path of the lessor under test.
var binary string

// Main builds lessor, runs the tests of a package, checks that they left no goroutine behind, and
// removes what it built. Call it from TestMain. If the tests have the race detector, lessor has it
// too. lessor is built with the tag faults, by which tests can set its wall clock and kill it at a
// commit.
func Main(m *testing.M) {
	code, err := build(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		code = 1
	}
	os.Exit(code)
}

func build(run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "lessor-test-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // so that the user of Stranger can run the program
		return 0, err
	}
	if err := checkRoom(dir); err != nil {
		return 0, err
	}
	binary = filepath.Join(dir, "lessor")
	// Each package of tests has its own binary. go build would link each of them; of what go run
	// links the build cache keeps a copy.
	args := append([]string{"run", "-exec", "cp", "-tags", "faults"}, raceFlag...)
	out, err := exec.Command("go", append(args, "github.com/lessor-dev/lessor/cmd/lessor", binary)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build lessor: %w\n%s", err, out)
	}
	code := run()
	if code != 0 {
		return code, nil
	}
	return 0, goleak.Find()
}

// leastRoom is the free space that the tests of a package need, in bytes: four times the disk
// reserve below which a coordinator accepts no tasks.
const leastRoom = 256 << 20

// checkRoom returns an error if the tests would fail for want of space only, each for another
// reason.
func checkRoom(dir string) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return err
	}
	// the types of both differ from system to system
	if free := float64(disk.Bavail) * float64(disk.Bsize); free < leastRoom {
		return fmt.Errorf("the disk of %s has %.0f MiB of free space; the tests need %d MiB",
			dir, free/(1<<20), leastRoom>>20)
	}
	return nil
}

// BuildPlain builds a command of this module as users have it, without the race detector and the
// memory that it needs, and returns its path.
func BuildPlain(t testing.TB, command string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(command))
	out, err := exec.Command("go", "build", "-o", path, "github.com/lessor-dev/lessor/"+command).CombinedOutput()
	if err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return path
}
