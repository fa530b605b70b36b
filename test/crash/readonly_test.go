//go:build faults

package crash

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/test/harness"
)

// TestReadOnlyDisk: when the disk becomes read-only, as the kernel makes it when it finds damage,
// the process ends with the exit code of a failed store. A start on this disk is refused and says
// why. When the disk can be written again, everything that was acknowledged is there (A6, A10).
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk := harness.NewDisk(t, 256)
	w := &walker{t: t, c: harness.NewCoordinator(t, filepath.Join(disk.Dir(), "data"))}
	w.c.Start()
	for range 5 {
		w.runTask()
	}
	acknowledged := len(w.ids)
	disk.Fail()
	for !w.hasEnded() {
		w.runTask()
	}
	if code := w.c.Process().Wait(); code != 70 {
		t.Errorf("exit code %d, want 70\n%s", code, w.c.Process().Stderr())
	}
	if len(w.ids) != acknowledged {
		t.Errorf("%d submits were acknowledged on a disk that cannot be written, want none", len(w.ids)-acknowledged)
	}
	if w.c.Try() {
		t.Fatal("the coordinator serves on a disk that cannot be written, want that it refuses to start")
	}
	if code, stderr := w.c.Process().Wait(), w.c.Process().Stderr(); code != 5 || !strings.Contains(stderr, "read-only file system") {
		t.Errorf("a start: exit code %d, want 5 and why\n%s", code, stderr)
	}
	disk.Restore()
	w.checkAfterRestart()
	if len(w.done) == 0 {
		t.Error("nothing was committed before")
	}
}
