//go:build faults

package crash

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

var cuts = flag.Int("cuts", 10, "power cuts that hit calls under way")

// TestPowerCut: when the disk loses its power, and with it all that was not synced, nothing that
// was acknowledged is lost or changed (A6, A10).
func TestPowerCut(t *testing.T) {
	t.Parallel()
	powerCuts(t, harness.NewDisk(t, 256+int64(*cuts)/2)) // all tasks are kept: each cut comes with about a quarter of a MiB
}

// TestPowerCutXFS is the same on XFS, whose journal works in another way.
func TestPowerCutXFS(t *testing.T) {
	t.Parallel()
	powerCuts(t, harness.NewXFS(t, 320+int64(*cuts)/2))
}

func powerCuts(t *testing.T, disk *harness.Disk) {
	t.Helper()
	r := newRounds(t, filepath.Join(disk.Dir(), "data"))
	r.c.PowerCuts = true
	r.end = func() {
		// The machine loses its power together with its disk, so the process is frozen first.
		// Otherwise it could see a flush succeed that the ext4 under shutdown never made.
		r.c.Process().Freeze()
		disk.Cut()
		r.c.Kill()
		disk.Restore()
	}
	r.run(*cuts)
}

// TestPowerCutWithoutSync checks that Cut really loses what was not synced: with syncs that do
// nothing, a cut must lose acknowledged tasks.
func TestPowerCutWithoutSync(t *testing.T) {
	t.Parallel()
	t.Run("ext4", func(t *testing.T) { losesWithoutSync(t, harness.NewDisk(t, 256)) })
	t.Run("xfs", func(t *testing.T) { losesWithoutSync(t, harness.NewXFS(t, 320)) })
}

// TestPowerCutWithAnotherNamespace checks that Restore brings the power back although a process
// that started meanwhile has the disk mounted, too, in a namespace of its own.
func TestPowerCutWithAnotherNamespace(t *testing.T) {
	t.Parallel()
	disk := harness.NewDisk(t, 256)
	other := exec.CommandContext(t.Context(), "sleep", "1")
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	disk.Cut()
	disk.Restore()
	if err := os.WriteFile(filepath.Join(disk.Dir(), "file"), nil, 0o600); err != nil {
		t.Error("the disk is without power after Restore:", err)
	}
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}

func losesWithoutSync(t *testing.T, disk *harness.Disk) {
	t.Helper()
	c := harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))
	c.Start() // so that the store exists, properly synced
	c.Stop()
	c.Under = harness.Strace(t, "fdatasync,fsync:retval=0")
	c.Start()
	const tasks = 50
	ids := make([]string, tasks)
	for i := range ids {
		ids[i] = submitOne(t, c)
	}
	disk.Cut()
	c.KillOrStoreFailed()
	disk.Restore()
	c.Under = nil
	c.Start()
	lost := 0
	for _, id := range ids {
		if _, err := lessorv1.NewTaskServiceClient(c.Conn()).GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id}); err != nil {
			lost++
		}
	}
	t.Logf("%d of %d acknowledged tasks were lost", lost, tasks)
	if lost == 0 {
		t.Error("no acknowledged task was lost although syncs did nothing: Cut does not cut the power")
	}
}
